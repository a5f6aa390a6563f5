// Checks that a graph is well formed: definitions before uses, unique names, valid operands, outputs and groups, and
// types that agree with what infer.hpp derives. Runs after capture and after every pass.
#pragma once

#include <string_view>

#include "ir/graph.hpp"

namespace kw {

// Throws kInternal naming the node and the step (`after`: "capture", "pass cse").
void verify(const Graph& graph, std::string_view after);

}  // namespace kw
