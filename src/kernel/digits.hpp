// Indices made of digits: constant + Σ coefficient · ((axis / divisor) % modulus), over axes that count from 0. Where
// coordinates are joined and taken apart again, as views of dense tensors do, indices keep this form: what each axis
// does can be told, equal indices are written alike, and what leaves the form is nullopt.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernel/index.hpp"

namespace kw::kernel {

struct Digit {
  Symbol axis = -1;
  int64_t coefficient = 1;
  int64_t divisor = 1;  // 1: none
  int64_t modulus = 0;  // 0: none

  bool is_plain() const { return divisor == 1 && modulus == 0; }
  bool operator==(const Digit&) const = default;
};

std::optional<Digit> digit_of(const IndexTerm& term);
// By axis, then by divisor. The index must have the form.
std::vector<Digit> digits_of(const Index& index);

// The coefficient with which the axis alone enters the index; 0: not at all, or only through divisions.
int64_t stride_along(const Index& index, Symbol axis);

// left + right, the digits of one number put together.
Index joined_digits(const Index& left, const Index& right, SymbolRanges ranges);

struct Division {
  Index quotient, remainder;
};
std::optional<Division> divide_digits(const Index& index, int64_t divisor, SymbolRanges ranges);

// Each axis replaced by an index over axes with `ranges`.
std::optional<Index> replace_digits(const Index& index, std::span<const Index> replacement, SymbolRanges ranges);

}  // namespace kw::kernel
