// Values of a graph that come of convolutions and matrix products whose operands PyTorch rounds to TF32's 11 digits:
// last places of functions of them say nothing.
#pragma once

#include <vector>

#include "ir/graph.hpp"

namespace kw::plan {

// Does PyTorch round what the node multiplies to TF32's 11 digits? Convolutions and products of matrices in f32, where
// it may; not convolutions on a CPU, nor those for which it has kernels of its own (groups, three dimensions with few
// channels).
bool rounds_operands(const Graph& graph, const Node& node);

// [value] Is it such a node's result, or made of such values (not one in groups, which few of them round), with
// nothing beside them but integers and smaller tensors (bias, scale, statistics)? Of graphs on a GPU.
std::vector<bool> rounded_values(const Graph& graph);

}  // namespace kw::plan
