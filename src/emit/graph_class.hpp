// The Python that runs kernel_forward as a CUDA graph.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace kw {

// graphed_forward(module, *tensors), which takes and returns what kernel_forward does, and the class behind it.
// `inputs`: kernel_forward's parameters, those that a call passes last, behind `kept` others. `results`: how many
// tensors it returns, one at least.
std::string graph_class_text(const std::vector<GraphInput>& inputs, size_t kept, size_t results);

}  // namespace kw
