#include "plan/index_math.hpp"

#include <algorithm>
#include <tuple>

#include "support/error.hpp"

namespace kw::plan {

namespace {

auto key(const IndexTerm& term) { return std::tie(term.axis, term.divisor, term.modulus); }

int64_t floor_quotient(int64_t value, int64_t divisor) {
  const int64_t quotient = value / divisor;
  return quotient - (value % divisor < 0 ? 1 : 0);
}

// Largest value of (axis / divisor) % modulus.
int64_t term_limit(const IndexTerm& term, Extents extents) {
  const int64_t top = (extents[term.axis] - 1) / term.divisor;
  return term.modulus == 0 ? top : std::min(top, term.modulus - 1);
}

void merge_equal_terms(std::vector<IndexTerm>& terms) {
  std::sort(terms.begin(), terms.end(), [](const IndexTerm& a, const IndexTerm& b) { return key(a) < key(b); });
  std::vector<IndexTerm> merged;
  for (const auto& term : terms) {
    if (!merged.empty() && key(merged.back()) == key(term)) merged.back().coefficient += term.coefficient;
    else merged.push_back(term);
  }
  std::erase_if(merged, [](const IndexTerm& term) { return term.coefficient == 0; });
  terms = std::move(merged);
}

// c·m·((a/(d·m)) % n) + c·((a/d) % m) = c·((a/d) % (m·n)): the digits of one axis put together again.
bool recompose_once(std::vector<IndexTerm>& terms) {
  for (auto& low : terms) {
    if (low.modulus == 0) continue;
    for (auto& high : terms) {
      if (&high == &low || high.axis != low.axis || high.divisor != low.divisor * low.modulus ||
          high.coefficient != low.coefficient * low.modulus)
        continue;
      const int64_t modulus = high.modulus == 0 ? 0 : low.modulus * high.modulus;
      low.modulus = modulus;
      terms.erase(terms.begin() + (&high - terms.data()));
      return true;
    }
  }
  return false;
}

// (unit·t + small) with 0 <= small < unit, where unit divides `divisor`: the split that lets a division reach inside
// one term.
struct UnitSplit {
  IndexTerm term;
  int64_t unit = 1;
  Index small;
};

std::optional<UnitSplit> split_by_unit(const Index& rest, int64_t divisor, Extents extents) {
  for (const auto& candidate : rest.terms) {
    const int64_t unit = candidate.coefficient;
    if (unit <= 0 || divisor % unit != 0) continue;
    UnitSplit split{candidate, unit, rest};
    std::erase(split.small.terms, candidate);
    const Range range = range_of(split.small, extents);
    if (range.low >= 0 && range.high < unit) return split;
  }
  return std::nullopt;
}

struct Division {
  Index quotient, remainder;
};

std::optional<Division> divide(const Index& index, int64_t divisor, Extents extents) {
  KW_ASSERT(divisor > 0, "division of an index by a non-positive number");
  Division result;
  Index rest;
  result.quotient.constant = floor_quotient(index.constant, divisor);
  rest.constant = index.constant - result.quotient.constant * divisor;
  for (const auto& term : index.terms) {
    if (term.coefficient % divisor == 0) {
      result.quotient.terms.push_back(term);
      result.quotient.terms.back().coefficient /= divisor;
    } else {
      rest.terms.push_back(term);
    }
  }
  Range range = range_of(rest, extents);
  // A constant may have been folded one period too far: (a − 1 + 8) / 8 with a in [1, 8].
  const int64_t shift = floor_quotient(range.low, divisor);
  if (range.high - shift * divisor < divisor) {
    rest.constant -= shift * divisor;
    result.quotient.constant += shift;
    result.remainder = normalise(std::move(rest), extents);
    result.quotient = normalise(std::move(result.quotient), extents);
    return result;
  }
  const auto split = split_by_unit(rest, divisor, extents);
  if (!split) return std::nullopt;
  const int64_t inner = divisor / split->unit;  // floor((unit·t + small) / divisor) = floor(t / inner)
  const IndexTerm& term = split->term;
  if (term.modulus != 0 && term.modulus % inner != 0) return std::nullopt;
  IndexTerm high = term, low = term;
  high.coefficient = 1;
  high.divisor = term.divisor * inner;
  high.modulus = term.modulus / inner;  // 0 stays 0
  low.modulus = inner;
  result.quotient.terms.push_back(high);
  result.remainder = split->small;
  result.remainder.terms.push_back(low);
  result.quotient = normalise(std::move(result.quotient), extents);
  result.remainder = normalise(std::move(result.remainder), extents);
  return result;
}

}  // namespace

Index constant_index(int64_t value) { return Index{value, {}}; }

Index axis_index(int axis, Extents extents) { return normalise(Index{0, {IndexTerm{axis, 1, 1, 0}}}, extents); }

Index normalise(Index index, Extents extents) {
  auto simplify = [&](IndexTerm& term) {
    if (term.modulus != 0 && (extents[term.axis] - 1) / term.divisor < term.modulus) term.modulus = 0;
    if (term_limit(term, extents) <= 0) term.coefficient = 0;
  };
  do {
    for (auto& term : index.terms) simplify(term);
    merge_equal_terms(index.terms);
  } while (recompose_once(index.terms));
  return index;
}

Index add(const Index& left, const Index& right, Extents extents) {
  Index sum = left;
  sum.constant += right.constant;
  sum.terms.insert(sum.terms.end(), right.terms.begin(), right.terms.end());
  return normalise(std::move(sum), extents);
}

Index scale(const Index& index, int64_t factor, Extents extents) {
  Index scaled = index;
  scaled.constant *= factor;
  for (auto& term : scaled.terms) term.coefficient *= factor;
  return normalise(std::move(scaled), extents);
}

Range range_of(const Index& index, Extents extents) {
  Range range{index.constant, index.constant};
  for (const auto& term : index.terms) {
    const int64_t reach = term.coefficient * term_limit(term, extents);
    (reach < 0 ? range.low : range.high) += reach;
  }
  return range;
}

bool is_constant(const Index& index) { return index.terms.empty(); }

std::optional<Index> floor_divide(const Index& index, int64_t divisor, Extents extents) {
  auto division = divide(index, divisor, extents);
  if (!division) return std::nullopt;
  return std::move(division->quotient);
}

std::optional<Index> modulo(const Index& index, int64_t divisor, Extents extents) {
  auto division = divide(index, divisor, extents);
  if (!division) return std::nullopt;
  return std::move(division->remainder);
}

Index dot(const Coords& coords, const Shape& strides, int64_t offset, Extents extents) {
  KW_ASSERT(coords.size() == strides.size(), "coordinates and strides differ in rank");
  Index sum{offset, {}};
  for (size_t dim = 0; dim < coords.size(); ++dim) {
    sum.constant += coords[dim].constant * strides[dim];
    for (IndexTerm term : coords[dim].terms) {
      term.coefficient *= strides[dim];
      sum.terms.push_back(term);
    }
  }
  return normalise(std::move(sum), extents);
}

Index linearise(const Coords& coords, const Shape& shape, Extents extents) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    strides[dim] = stride;
    stride *= shape[dim];
  }
  return dot(coords, strides, 0, extents);
}

std::optional<Coords> delinearise(const Index& position, const Shape& shape, Extents extents) {
  Coords coords(shape.size());
  Index rest = position;
  size_t first = 0;  // the outermost dimension larger than 1 takes what is left, undivided
  while (first < shape.size() && shape[first] == 1) ++first;
  for (size_t dim = shape.size(); dim-- > 0;) {
    if (shape[dim] == 1) continue;
    if (dim == first) {
      coords[dim] = rest;
      break;
    }
    auto division = divide(rest, shape[dim], extents);
    if (!division) return std::nullopt;
    coords[dim] = std::move(division->remainder);
    rest = std::move(division->quotient);
  }
  return coords;
}

std::optional<Coords> reshape(const Coords& coords, const Shape& from, const Shape& to, Extents extents) {
  if (from == to) return coords;
  return delinearise(linearise(coords, from, extents), to, extents);
}

std::optional<Index> substitute(const Index& index, std::span<const Index> replacement, Extents extents) {
  Index result{index.constant, {}};
  for (const auto& term : index.terms) {
    std::optional<Index> part = replacement[term.axis];
    if (term.divisor != 1) part = floor_divide(*part, term.divisor, extents);
    if (part && term.modulus != 0) part = modulo(*part, term.modulus, extents);
    if (!part) return std::nullopt;
    result = add(result, scale(*part, term.coefficient, extents), extents);
  }
  return normalise(std::move(result), extents);
}

bool less(const Index& left, const Index& right) {
  if (left.constant != right.constant) return left.constant < right.constant;
  return std::lexicographical_compare(left.terms.begin(), left.terms.end(), right.terms.begin(), right.terms.end(),
                                      [](const IndexTerm& a, const IndexTerm& b) {
                                        return std::tie(a.axis, a.coefficient, a.divisor, a.modulus) <
                                               std::tie(b.axis, b.coefficient, b.divisor, b.modulus);
                                      });
}

bool less(const Coords& left, const Coords& right) {
  return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end(),
                                      [](const Index& a, const Index& b) { return less(a, b); });
}

}  // namespace kw::plan
