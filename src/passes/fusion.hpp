// Fusion: sorts a graph's nodes into groups, each to become one kernel (or one library call), in an order in which they
// can run.
#pragma once

#include "ir/graph.hpp"
#include "passes/rewriter.hpp"
#include "target/graph_forms.hpp"

namespace kw {

// Fills graph.groups: every node but views stands in at least one group, ascending; cheap nodes may stand in several.
// Views need no group: what reads one reads its base through the view's strides. Nodes that take random numbers keep
// their order. Nearly linear in the nodes. Rewrites nothing.
RewriteCounts fusion(Graph& graph, const GraphForms& forms);

}  // namespace kw
