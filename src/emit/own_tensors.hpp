// A module's own tensors, each call: their places are found once. A lookup in a torch.nn.Module is a Python call, so
// that those of a hundred tensors take as long as a network's kernels.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace kw {

// How many of the inputs, from the first on, are parameters and buffers that a module registers.
size_t registered_tensors(const std::vector<GraphInput>& inputs);

// Python: own_tensors(module), those of the first `count` entries of EXPECTED. After it PLACES[module][2] is the list
// of the parts of the module that have these paths, "layer1.0.bn1".
std::string own_tensors_text(size_t count, const std::vector<std::string>& parts);

}  // namespace kw
