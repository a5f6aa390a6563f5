// Index algebra: whole numbers made of symbols (axes, loop variables, lanes, run-time sizes) by +, ·, floor division,
// remainder and minimum. An index is a sum of terms; a term is a coefficient times factors; a factor is a symbol, the
// quotient or remainder of one index by another, or the smaller of two. Indices are kept in one order and simplified by
// what is known of the symbols, so equal text means equal value. Nothing is refused: what cannot be simplified is kept
// as it was written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kw::kernel {

using Symbol = int;  // its place in the table of the kernel or tile program that the index belongs to

// What is known of a symbol: low <= value <= high, and `divisor` divides it.
struct SymbolRange {
  int64_t low = 0, high = 0;
  int64_t divisor = 1;
  bool operator==(const SymbolRange&) const = default;
};
using SymbolRanges = std::span<const SymbolRange>;

struct Index;

struct IndexFactor {
  enum class Kind { kSymbol, kQuotient, kRemainder, kMinimum };
  Kind kind = Kind::kSymbol;
  Symbol symbol = -1;                              // kSymbol
  std::shared_ptr<const Index> dividend, divisor;  // kQuotient (rounded down), kRemainder (never negative);
                                                   // kMinimum: the two, as they were written
};

struct IndexTerm {
  int64_t coefficient = 1;
  std::vector<IndexFactor> factors;  // in order; at least one
};

struct Index {
  int64_t constant = 0;
  std::vector<IndexTerm> terms;  // in order; no two with the same factors; no coefficient is 0

  Index() = default;
  Index(int64_t number) : constant(number) {}  // NOLINT: a number is an index
};

Index symbol_index(Symbol symbol);
Index operator+(const Index& left, const Index& right);
Index operator-(const Index& left, const Index& right);
Index operator*(const Index& left, const Index& right);

// floor(index / divisor) and what is left, for divisors of at least 1. Simplified as far as the ranges show it:
// multiples of the divisor leave the quotient, and a remainder of what is smaller than the divisor is that itself.
Index floor_divide(const Index& index, const Index& divisor, SymbolRanges ranges);
Index modulo(const Index& index, const Index& divisor, SymbolRanges ranges);
Index ceil_divide(const Index& index, const Index& divisor, SymbolRanges ranges);

// The smaller of two: one of them, where the ranges show which.
Index minimum(const Index& left, const Index& right, SymbolRanges ranges);

// The same number, with n in the place of d · floor(n / d) + n % d.
Index recombined(const Index& index, SymbolRanges ranges);

// A total order, and equality of what is written.
int compare(const Index& left, const Index& right);
inline bool operator==(const Index& left, const Index& right) { return compare(left, right) == 0; }

std::optional<int64_t> as_constant(const Index& index);
std::optional<Symbol> as_symbol(const Index& index);
bool uses(const Index& index, Symbol symbol);
void collect_symbols(const Index& index, std::vector<bool>& found);  // marks those that it uses; grows `found`

// index = coefficient · symbol + rest, where neither coefficient nor rest uses the symbol; nullopt where it is not so.
struct Linear {
  Index coefficient, rest;
};
std::optional<Linear> linear_in(const Index& index, Symbol symbol);

// Bounds that hold for every value of the symbols; not always the tightest. Saturates instead of overflowing.
struct Interval {
  int64_t low = 0, high = 0;
};
Interval range_of(const Index& index, SymbolRanges ranges);
// The largest number that is known to divide the index; 0 for the index 0.
int64_t known_divisor(const Index& index, SymbolRanges ranges);

// The value where the symbols have these.
int64_t evaluate(const Index& index, std::span<const int64_t> values);
// The index with each symbol replaced.
Index substitute(const Index& index, const std::function<Index(Symbol)>& replacement, SymbolRanges ranges);

// "row * 4096 + column / 2 % 16"; a printer of other languages gives the words for quotients, remainders and minima.
struct IndexWords {
  std::function<std::string(Symbol)> name;
  std::string_view quotient = " / ", remainder = " % ", minimum = "min";
  std::function<std::string(int64_t)> number = {};  // empty: decimal
};
std::string print_index(const Index& index, const IndexWords& words);

}  // namespace kw::kernel
