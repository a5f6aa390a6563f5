#include "plan/product_conversion.hpp"

#include <algorithm>

namespace kw::plan {

std::optional<ConvertedProduct> with_conversion(const GraphFacts& facts, std::span<const NodeId> nodes,
                                                const Product& product) {
  const ValueId converted = product.right.root;
  const NodeId maker = facts.graph.values[converted].producer;
  if (maker == kNoNode || !std::binary_search(nodes.begin(), nodes.end(), maker)) return std::nullopt;
  const Node& node = facts.graph.nodes[maker];
  if (base_name(node) != "_to_copy") return std::nullopt;
  const ValueId given = node.value("self");
  const TensorType &from = facts.graph.type(given), &to = facts.graph.type(converted);
  const bool is_byte = from.dtype == DType::i8 || from.dtype == DType::u8;
  if (!is_byte || from.shape != to.shape || from.strides != to.strides) return std::nullopt;
  ConvertedProduct made{product, maker};
  made.product.right = placed(facts, given);
  made.product.right.offset += product.right.offset;
  made.product.right.batch = product.right.batch;
  made.product.right.column = product.right.column;
  made.product.right.depth = product.right.depth;
  return made;
}

}  // namespace kw::plan
