// Ops that write where indices say (index_add, scatter, index_put), or a slice of what a call updates. Their kernel
// runs over the points that write, and stores into memory that already holds `self`: into the one tensor that nothing
// else reads, which the result then is.
#pragma once

#include <optional>
#include <vector>

#include "plan/group_kernel.hpp"
#include "ir/graph.hpp"
#include "plan/lookup.hpp"
#include "plan/pull.hpp"

namespace kw::plan {

struct GraphFacts;

struct ScatterSpec {
  Shape domain;  // of the points that write
  ValueId into = kNoValue;
  ValueId source = kNoValue;  // kNoValue: `number` is written
  double number = 0.0;
  double alpha = 1.0;            // what the source is multiplied by
  std::optional<ReduceOp> fold;  // none: the point's value takes the element's place
};

// nullopt: not such an op, or not in a form that kernels have.
std::optional<ScatterSpec> scatter_spec(const Graph& graph, NodeId node);

struct ScatterPoint {
  Coords place;                // in the result
  std::vector<Pull> operands;  // the source, if there is one, and the indices
};
// nullopt: not expressible.
std::optional<ScatterPoint> scatter_point(const Graph& graph, NodeId node, const ScatterSpec& spec, const Coords& point,
                                          Lookups& lookups);

// Does it write a slice (slice_scatter, select_scatter)? Such a node is a scatter only where it owns its destination:
// elsewhere the whole result is made, pointwise.
bool is_slice(const Node& node);

// May the node write into its operand's memory? Nothing else reads it, it lies as the result is to lie, and a kernel of
// ours has made it, or it is the module's or the caller's and the result is what the call is to leave in it.
bool owns_destination(const GraphFacts& facts, NodeId node);

}  // namespace kw::plan
