// Where elements lie along a number whose digits have strides of their own (DigitStrides): equal maps are told however
// axes are split, and maps of a copy are those of what it copies.
#pragma once

#include <optional>

#include "plan/group_lowering.hpp"

namespace kw::plan {

// Digits that neighbours continue are one, and those of extent 1 none.
DigitStrides canonical(const DigitStrides& digits);
bool same_places(const DigitStrides& one, const DigitStrides& other);

// Of an operand of a product along its batch, rows (columns) and depth.
struct OperandPlaces {
  ValueId root = kNoValue;
  int64_t offset = 0;
  DigitStrides batch, outer, depth;

  bool operator==(const OperandPlaces& other) const;
};

// Of a value whose dimensions these are; a negative dimension: none.
OperandPlaces places_in(const GraphFacts& facts, ValueId value, const Shape& strides, const Shape& shape,
                        std::span<const int64_t> batch, int64_t outer, std::span<const int64_t> depth);

bool is_copy(const GraphFacts& facts, NodeId node);
// In what a copy was made of, as far as each number's digits are whole dimensions of the copy. `copies`: whose copies
// are passed through, those that are listed.
OperandPlaces before_copies(const GraphFacts& facts, OperandPlaces places, std::span<const NodeId> copies);

// The index at a number, within `ranges`.
Index index_along(const DigitStrides& digits, const Index& number, kernel::SymbolRanges ranges);

}  // namespace kw::plan
