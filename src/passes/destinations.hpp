// Gives every op that writes where indices say, and that our kernels do, memory of its own to write into: a copy of its
// operand where something else reads that. Fusion makes the copy in the kernel that computes the operand.
#pragma once

#include "passes/rewriter.hpp"
#include "target/graph_forms.hpp"

namespace kw {

RewriteCounts destinations(Graph& graph, const GraphForms& forms);

}  // namespace kw
