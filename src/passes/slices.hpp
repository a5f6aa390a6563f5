// Slices of a tensor along one of its axes (aten.select.int; a slice of one place, without its axis), as the rewrites
// of loops find and make them.
#pragma once

#include <optional>

#include "passes/rewriter.hpp"

namespace kw {

struct Slice {
  ValueId whole = kNoValue;
  int64_t dim = 0, index = 0;  // neither is negative
  bool operator==(const Slice&) const = default;
  bool is_before(const Slice& next) const { return whole == next.whole && dim == next.dim && index + 1 == next.index; }
};
bool is_slicing(const Node& node);
// Of a value that is one.
std::optional<Slice> slice_of(const Rewriter& rewriter, ValueId value);

// `count` slices of a tensor from `first` on, with their axis in front.
ValueId emit_slices(Rewriter& rewriter, const Slice& first, int64_t count);

// `tensor`, whose axes are `order` of the old ones'.
ValueId emit_permuted(Rewriter& rewriter, ValueId tensor, const IntList& order);

// Slice `index` along the first axis.
ValueId emit_slice(Rewriter& rewriter, ValueId whole, int64_t index);

}  // namespace kw
