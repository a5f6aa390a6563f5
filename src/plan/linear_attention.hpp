// Linear attention among a graph's nodes: keys and values are summed up to a small matrix for each head (the summary),
// which queries are multiplied by. Queries may be weighted, too: by the sum of a head's keys, which normalises results.
#pragma once

#include <span>
#include <vector>

#include "plan/group_lowering.hpp"

namespace kw::plan {

// Features of a key or value that one block has all of.
constexpr int64_t kWidestSummary = 128;

// nullopt where the nodes are no linear attention of these kernels: what stands before a product is not element by
// element, or is stored; what is behind them reads more than results and weights; heads are wider than kWidestSummary.
std::optional<LoweredGroup> lower_linear_attention(const GraphFacts& facts, std::span<const NodeId> nodes,
                                                   const std::vector<ValueId>& outputs);

// Two products of which the second has the first one's result for its right operand; kNoNode where there are none, or
// several.
struct SummaryNodes {
  NodeId summary = kNoNode, values = kNoNode;
};
SummaryNodes summary_among(const GraphFacts& facts, std::span<const NodeId> nodes);

}  // namespace kw::plan
