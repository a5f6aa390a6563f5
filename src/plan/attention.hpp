// Attention among a graph's nodes: a softmax over the product of queries and keys, whose result only the product with
// the values reads; or PyTorch's operator for it. Without the softmax, any two products of which the second reads what
// pointwise nodes make of the first.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plan/group_lowering.hpp"

namespace kw::plan {

bool is_attention_operator(const Node& node);

// The softmax among `nodes` (ascending) of whose result they make the value element by element; kNoNode where there is
// none.
NodeId softmax_before(const GraphFacts& facts, std::span<const NodeId> nodes, ValueId value);

// The two products of nodes that are attention, and the softmax between them; kNoNode where what the first yields is
// weighed with as it is, or PyTorch's operator is all of it (`values`). nullopt: they are none.
struct AttentionNodes {
  NodeId scores = kNoNode, softmax = kNoNode, values = kNoNode;
};
std::optional<AttentionNodes> attention_among(const GraphFacts& facts, std::span<const NodeId> nodes);

// nullopt where the nodes are no attention of one kernel: what stands between the products is not element by element,
// or is stored; what stands behind the softmax does more than keep or drop weights and scale them all
// (kept_weights.hpp); heads are wider than kWidestHead (kWidestHeadOfFew where rows are few); PyTorch's operator drops
// weights itself, by a stream of numbers of its own.
std::optional<LoweredGroup> lower_attention(const GraphFacts& facts, std::span<const NodeId> nodes,
                                            const std::vector<ValueId>& outputs);

}  // namespace kw::plan
