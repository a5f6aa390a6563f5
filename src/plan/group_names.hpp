// What a group's kernel and its values are called, after the operators that they come of.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"

namespace kw::plan {

// "rms_norm_gelu_kernel" and "Computes rms_norm, gelu." from the group's ops.
std::string kernel_name(const Graph& graph, std::span<const NodeId> nodes);
std::string kernel_doc(const Graph& graph, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs);

// What the operator's result is called in a kernel ("activated"); empty for plain arithmetic, which is printed where it
// is used.
std::string_view result_name(std::string_view op);

}  // namespace kw::plan
