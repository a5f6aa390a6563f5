#include "kernel/digits.hpp"

#include <algorithm>
#include <tuple>

#include "support/error.hpp"

namespace kw::kernel {
namespace {

using Kind = IndexFactor::Kind;

// The one factor that an index is; null where it is more.
const IndexFactor* factor_of(const Index& index) {
  if (index.constant != 0 || index.terms.size() != 1 || index.terms[0].coefficient != 1 ||
      index.terms[0].factors.size() != 1)
    return nullptr;
  return &index.terms[0].factors[0];
}

Index index_of(const Digit& digit, SymbolRanges ranges) {
  Index index = floor_divide(symbol_index(digit.axis), digit.divisor, ranges);
  if (digit.modulus != 0) index = modulo(index, digit.modulus, ranges);
  return index * digit.coefficient;
}

Index without(Index index, const Digit& digit) {
  std::erase_if(index.terms, [&](const IndexTerm& term) { return digit_of(term) == digit; });
  return index;
}

// c·m·((a/(d·m)) % n) + c·((a/d) % m) = c·((a/d) % (m·n))
Index with_longer_digits(Index index, SymbolRanges ranges) {
  for (const Digit& low : digits_of(index)) {
    if (low.modulus == 0) continue;
    for (const Digit& high : digits_of(index)) {
      if (high.axis != low.axis || high.divisor != low.divisor * low.modulus ||
          high.coefficient != low.coefficient * low.modulus)
        continue;
      Digit both = low;
      both.modulus = low.modulus * high.modulus;
      return with_longer_digits(without(without(index, low), high) + index_of(both, ranges), ranges);
    }
  }
  return index;
}

// (unit·t + small) with 0 <= small < unit, where unit divides `divisor`: the split that lets a division reach inside
// one digit.
struct UnitSplit {
  Digit digit;
  Index small;
};

std::optional<UnitSplit> split_by_unit(const Index& rest, int64_t divisor, SymbolRanges ranges) {
  for (const Digit& digit : digits_of(rest)) {
    if (digit.coefficient <= 0 || divisor % digit.coefficient != 0) continue;
    UnitSplit split{digit, without(rest, digit)};
    const Interval range = range_of(split.small, ranges);
    if (range.low >= 0 && range.high < digit.coefficient) return split;
  }
  return std::nullopt;
}

int64_t floor_quotient(int64_t value, int64_t divisor) { return value / divisor - (value % divisor < 0 ? 1 : 0); }

}  // namespace

std::optional<Digit> digit_of(const IndexTerm& term) {
  if (term.factors.size() != 1) return std::nullopt;
  Digit digit;
  digit.coefficient = term.coefficient;
  const IndexFactor* factor = &term.factors[0];
  const auto take = [&](Kind kind, int64_t& number) {
    if (!factor || factor->kind != kind) return;
    const std::optional<int64_t> divisor = as_constant(*factor->divisor);
    if (divisor) number = *divisor;
    factor = divisor ? factor_of(*factor->dividend) : nullptr;
  };
  take(Kind::kRemainder, digit.modulus);
  take(Kind::kQuotient, digit.divisor);
  if (!factor || factor->kind != Kind::kSymbol) return std::nullopt;
  digit.axis = factor->symbol;
  return digit;
}

std::vector<Digit> digits_of(const Index& index) {
  std::vector<Digit> digits;
  digits.reserve(index.terms.size());
  for (const IndexTerm& term : index.terms) {
    const std::optional<Digit> digit = digit_of(term);
    KW_ASSERT(digit, "an index that is not made of digits");
    digits.push_back(*digit);
  }
  std::sort(digits.begin(), digits.end(), [](const Digit& a, const Digit& b) {
    return std::tie(a.axis, a.divisor, a.modulus) < std::tie(b.axis, b.divisor, b.modulus);
  });
  return digits;
}

int64_t stride_along(const Index& index, Symbol axis) {
  for (const IndexTerm& term : index.terms)
    if (term.factors.size() == 1 && term.factors[0].kind == Kind::kSymbol && term.factors[0].symbol == axis)
      return term.coefficient;
  return 0;
}

Index joined_digits(const Index& left, const Index& right, SymbolRanges ranges) {
  return with_longer_digits(left + right, ranges);
}

std::optional<Division> divide_digits(const Index& index, int64_t divisor, SymbolRanges ranges) {
  KW_ASSERT(divisor > 0, "division of an index by a non-positive number");
  Division result;
  Index rest(index.constant);
  for (const IndexTerm& term : index.terms) {
    Index& part = term.coefficient % divisor == 0 ? result.quotient : rest;
    part.terms.push_back(term);
    if (&part == &result.quotient) part.terms.back().coefficient /= divisor;
  }
  const Interval range = range_of(rest, ranges);
  int64_t whole = floor_quotient(range.low, divisor);
  if (range.high - whole * divisor < divisor) {
    result.quotient = with_longer_digits(result.quotient + whole, ranges);
    result.remainder = with_longer_digits(rest - Index(whole * divisor), ranges);
    return result;
  }
  whole = floor_quotient(rest.constant, divisor);
  rest.constant -= whole * divisor;
  const auto split = split_by_unit(rest, divisor, ranges);
  if (!split) return std::nullopt;
  const Digit& digit = split->digit;
  const int64_t inner = divisor / digit.coefficient;  // floor((unit·t + small) / divisor) = floor(t / inner)
  if (digit.modulus != 0 && digit.modulus % inner != 0) return std::nullopt;
  Digit high = digit, low = digit;
  high.coefficient = 1;
  high.divisor *= inner;
  high.modulus /= inner;  // 0 stays 0
  low.modulus = inner;
  result.quotient = with_longer_digits(result.quotient + whole + index_of(high, ranges), ranges);
  result.remainder = with_longer_digits(split->small + index_of(low, ranges), ranges);
  return result;
}

std::optional<Index> replace_digits(const Index& index, std::span<const Index> replacement, SymbolRanges ranges) {
  Index result(index.constant);
  for (const Digit& digit : digits_of(index)) {
    std::optional<Division> part = Division{replacement[digit.axis], 0};
    if (digit.divisor != 1) part = divide_digits(part->quotient, digit.divisor, ranges);
    if (part && digit.modulus != 0) {
      part = divide_digits(part->quotient, digit.modulus, ranges);
      if (part) part->quotient = part->remainder;
    }
    if (!part) return std::nullopt;
    result = result + part->quotient * digit.coefficient;
  }
  return with_longer_digits(result, ranges);
}

}  // namespace kw::kernel
