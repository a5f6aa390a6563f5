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

// The softmax on whose result, or on a cast of it, the product's left operand lies; kNoNode where there is none.
NodeId softmax_before(const GraphFacts& facts, const Product& product);

// The two products of nodes that are attention, and the softmax between them; kNoNode where what the first yields is
// weighed with as it is, or PyTorch's operator is all of it (`values`). nullopt: they are none.
struct AttentionNodes {
  NodeId scores = kNoNode, softmax = kNoNode, values = kNoNode;
};
std::optional<AttentionNodes> attention_among(const GraphFacts& facts, std::span<const NodeId> nodes);

// nullopt where the nodes are no attention of one kernel: what stands between the products is not element by element,
// or is stored; heads are wider than kWidestHead; there is dropout.
std::optional<LoweredGroup> lower_attention(const GraphFacts& facts, std::span<const NodeId> nodes,
                                            const std::vector<ValueId>& outputs);

}  // namespace kw::plan
