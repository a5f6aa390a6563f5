// Expressions of scan nodes: cumsum, cumprod, cummax, cummin, logcumsumexp.
#pragma once

#include <optional>

#include "ir/graph.hpp"
#include "plan/group_builder.hpp"

namespace kw::plan {

struct ScanContext {
  GroupBuilder& build;
  const Graph& graph;
  NodeId id;
  int result = 0;               // which of the node's results
  ExprId operand = kNoExpr;     // at the point of the scan axis, in its compute dtype
  ExprId inside = kNoExpr;      // b1: the operand has an element there; kNoExpr: everywhere
  Index position;               // along the scanned dimension
  bool with_positions = false;  // somebody reads where the extremes stand
};

// What the scan's operand may be where it has no element, if any number of its dtype does.
std::optional<double> scan_identity(const Graph& graph, NodeId id);

// The result in its compute dtype.
ExprId lower_scan(const ScanContext& context);

// Along an axis of one element every scan is its operand.
ExprId scan_of_one(GroupBuilder& build, const Graph& graph, NodeId id, int result, ExprId operand);

}  // namespace kw::plan
