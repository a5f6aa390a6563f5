// What a group's kernel and its values are called, after the operators that they come of.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace kw::plan {

// "rms_norm_gelu_kernel" and "Computes rms_norm, gelu." from the group's ops.
std::string kernel_name(const Graph& graph, std::span<const NodeId> nodes);
std::string kernel_doc(const Graph& graph, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs);

}  // namespace kw::plan
