// A product whose right operand is converted before: its kernel can do that where it reads it.
#pragma once

#include <optional>
#include <span>

#include "plan/product.hpp"

namespace kw::plan {

struct ConvertedProduct {
  Product product;  // its right operand is what the conversion reads, in the order of memory of what that makes
  NodeId conversion = kNoNode;
};

// By a conversion of 8-bit integers among `nodes` (ascending). nullopt: there is none.
std::optional<ConvertedProduct> with_conversion(const GraphFacts& facts, std::span<const NodeId> nodes,
                                                const Product& product);

}  // namespace kw::plan
