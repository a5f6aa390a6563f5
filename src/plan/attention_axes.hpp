// The axes of attention's kernels (attention_kernels.cpp). Heads that are wider than a tile are in several.
#pragma once

#include <string>
#include <vector>

#include "plan/product_kernels.hpp"

namespace kw::plan {

constexpr int64_t kLeastRowsOfDot = 16;  // of a block, and lanes of a tile; fewer rows are multiplied and added up

// As much of a head as one tile has: along which axis, and where it begins.
struct PieceOfHead {
  kernel::Symbol axis = -1;
  int64_t first = 0;
};

// Those of the product of queries and keys, and those of weights and values, of which `depth` and `column` are one
// piece after the other.
struct AttentionSymbols {
  ProductSymbols scores, values;
  std::vector<PieceOfHead> features, columns;
};

// Of a head with so many features (`extent`), where tiles have `widest` lanes. Whole tiles share an axis; what is left
// has one of its own.
std::vector<PieceOfHead> pieces_of_head(KernelDraft& draft, const std::string& name, int64_t extent, int64_t widest);
// [axis of those pieces] The lanes of its tile.
std::vector<int64_t> lanes_of_pieces(int64_t extent, int64_t widest);

ProductSymbols along(ProductSymbols scores, const PieceOfHead& features);
AttentionSymbols at(AttentionSymbols symbols, const PieceOfHead& columns);

}  // namespace kw::plan
