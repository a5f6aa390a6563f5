// Fusion: sorts a graph's nodes into groups, each to become one kernel (or one library call), in an order in which they
// can run.
#pragma once

#include "ir/graph.hpp"
#include "passes/rewriter.hpp"

namespace kw {

struct FusionOptions {
  int most_nodes = 96;           // of a group
  int most_tensors = 24;         // read or written by a group
  int most_inlined_weight = 48;  // arithmetic repeated for every element when a small producer joins a larger consumer
};

// Fills graph.groups: every node but views stands in at least one group, ascending; cheap nodes may stand in several.
// Views need no group: what reads one reads its base through the view's strides. Nodes that take random numbers keep
// their order. Nearly linear in the nodes.
void fuse(Graph& graph, const FusionOptions& options);

RewriteCounts fusion(Graph& graph);  // the pass: fuse with the default options; rewrites nothing

}  // namespace kw
