// Expressions of reduce nodes: sums, norms, softmax, statistics. Composite ops expand here into Reduce expressions and
// pointwise arithmetic.
#pragma once

#include <map>
#include <vector>

#include "ir/graph.hpp"
#include "plan/group_builder.hpp"
#include "plan/op_table.hpp"

namespace kw::plan {

struct ReduceContext {
  GroupBuilder& build;
  const Graph& graph;
  NodeId id;
  const ReduceSpec& spec;
  const std::map<ValueId, ExprId>& operands;  // per tensor operand, in its compute dtype
  int64_t folded = 1;                         // number of elements each reduction folds
};

// One expression per result of the node (kNoExpr where it has no tensor). Throws kInternal for an op that reduce_spec()
// does not know.
std::vector<ExprId> lower_reduction(const ReduceContext& context);

}  // namespace kw::plan
