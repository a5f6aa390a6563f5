#include "kernel/index.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "support/error.hpp"

namespace kw::kernel {
namespace {

using Kind = IndexFactor::Kind;

int compare(const IndexFactor& left, const IndexFactor& right) {
  if (left.kind != right.kind) return left.kind < right.kind ? -1 : 1;
  if (left.kind == Kind::kSymbol) return left.symbol < right.symbol ? -1 : left.symbol > right.symbol;
  if (const int order = kernel::compare(*left.dividend, *right.dividend)) return order;
  return kernel::compare(*left.divisor, *right.divisor);
}

int compare(const std::vector<IndexFactor>& left, const std::vector<IndexFactor>& right) {
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i)
    if (const int order = compare(left[i], right[i])) return order;
  return left.size() < right.size() ? -1 : left.size() > right.size();
}

// Terms in order, equal ones merged, zeros gone.
Index collected(int64_t constant, std::vector<IndexTerm> terms) {
  std::sort(terms.begin(), terms.end(),
            [](const IndexTerm& left, const IndexTerm& right) { return compare(left.factors, right.factors) < 0; });
  Index result(constant);
  for (IndexTerm& term : terms) {
    if (!result.terms.empty() && compare(result.terms.back().factors, term.factors) == 0)
      result.terms.back().coefficient += term.coefficient;
    else result.terms.push_back(std::move(term));
    if (result.terms.back().coefficient == 0) result.terms.pop_back();
  }
  return result;
}

Index of_factor(IndexFactor factor) {
  Index result;
  result.terms.push_back({1, {std::move(factor)}});
  return result;
}

Index of_pair(Kind kind, Index dividend, Index divisor) {
  return of_factor({kind, -1, std::make_shared<const Index>(std::move(dividend)),
                    std::make_shared<const Index>(std::move(divisor))});
}

int64_t floor_of(int64_t value, int64_t divisor) {
  const int64_t quotient = value / divisor;
  return quotient * divisor > value ? quotient - 1 : quotient;
}

// --- Saturating arithmetic: bounds may be as far away as they like ---

constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 4;

int64_t saturated(__int128 value) { return value > kFar ? kFar : value < -kFar ? -kFar : static_cast<int64_t>(value); }

Interval add(const Interval& left, const Interval& right) {
  return {saturated(static_cast<__int128>(left.low) + right.low),
          saturated(static_cast<__int128>(left.high) + right.high)};
}

Interval multiply(const Interval& left, const Interval& right) {
  const auto product = [](int64_t a, int64_t b) { return saturated(static_cast<__int128>(a) * b); };
  const auto [low, high] = std::minmax({product(left.low, right.low), product(left.low, right.high),
                                        product(left.high, right.low), product(left.high, right.high)});
  return {low, high};
}

Interval range_of(const IndexFactor& factor, SymbolRanges ranges) {
  if (factor.kind == Kind::kSymbol) return {ranges[factor.symbol].low, ranges[factor.symbol].high};
  const Interval dividend = kernel::range_of(*factor.dividend, ranges);
  Interval divisor = kernel::range_of(*factor.divisor, ranges);
  if (factor.kind == Kind::kMinimum)
    return {std::min(dividend.low, divisor.low), std::min(dividend.high, divisor.high)};
  divisor.low = std::max<int64_t>(divisor.low, 1);
  divisor.high = std::max<int64_t>(divisor.high, divisor.low);
  if (factor.kind == Kind::kQuotient)
    return {std::min(floor_of(dividend.low, divisor.low), floor_of(dividend.low, divisor.high)),
            std::max(floor_of(dividend.high, divisor.low), floor_of(dividend.high, divisor.high))};
  if (dividend.low >= 0) return {0, std::min(dividend.high, divisor.high - 1)};
  return {0, divisor.high - 1};
}

int64_t known_divisor(const IndexFactor& factor, SymbolRanges ranges) {
  if (factor.kind == Kind::kSymbol) {
    const SymbolRange& range = ranges[factor.symbol];
    return range.low == range.high ? std::abs(range.low) : range.divisor;
  }
  if (factor.kind != Kind::kQuotient)
    return std::gcd(kernel::known_divisor(*factor.dividend, ranges), kernel::known_divisor(*factor.divisor, ranges));
  const int64_t dividend = kernel::known_divisor(*factor.dividend, ranges);
  if (const auto number = as_constant(*factor.divisor); number && dividend % *number == 0) return dividend / *number;
  return 1;
}

// The index without its multiples of the divisor, and these divided by it.
struct Split {
  Index multiples, rest;
};

// term / divisor where that is one term again and known to leave nothing.
std::optional<IndexTerm> divided(const IndexTerm& term, const Index& divisor, SymbolRanges ranges) {
  if (const auto number = as_constant(divisor)) {
    if (term.coefficient % *number == 0) return IndexTerm{term.coefficient / *number, term.factors};
    // A symbol that the number divides: its quotient is whole, so that the term is coefficient · (symbol / number).
    for (size_t i = 0; i < term.factors.size(); ++i) {
      const int64_t common = std::gcd(term.coefficient, *number), left = *number / common;
      if (known_divisor(term.factors[i], ranges) % left != 0) continue;
      IndexTerm result{term.coefficient / common, term.factors};
      if (left == 1) return result;
      Index whole;
      whole.terms.push_back({1, {term.factors[i]}});
      result.factors[i] = of_pair(Kind::kQuotient, whole, Index(left)).terms[0].factors[0];
      std::sort(result.factors.begin(), result.factors.end(),
                [](const IndexFactor& a, const IndexFactor& b) { return compare(a, b) < 0; });
      return result;
    }
    return std::nullopt;
  }
  if (divisor.constant != 0 || divisor.terms.size() != 1 || divisor.terms[0].coefficient < 0 ||
      term.coefficient % divisor.terms[0].coefficient != 0)
    return std::nullopt;
  IndexTerm result{term.coefficient / divisor.terms[0].coefficient, term.factors};
  for (const IndexFactor& factor : divisor.terms[0].factors) {
    const auto found = std::find_if(result.factors.begin(), result.factors.end(),
                                    [&](const IndexFactor& one) { return compare(one, factor) == 0; });
    if (found == result.factors.end()) return std::nullopt;
    result.factors.erase(found);
  }
  return result;
}

Split split(const Index& index, const Index& divisor, SymbolRanges ranges) {
  std::vector<IndexTerm> multiples, rest;
  int64_t quotient = 0, constant = index.constant;
  if (const auto number = as_constant(divisor)) {
    quotient = floor_of(index.constant, *number);
    constant = index.constant - quotient * *number;
  }
  for (const IndexTerm& term : index.terms) {
    if (auto whole = divided(term, divisor, ranges)) {
      if (whole->factors.empty()) quotient += whole->coefficient;
      else multiples.push_back(std::move(*whole));
    } else {
      rest.push_back(term);
    }
  }
  return {collected(quotient, std::move(multiples)), collected(constant, std::move(rest))};
}

// Is 0 <= index < divisor known?
bool is_within(const Index& index, const Index& divisor, SymbolRanges ranges) {
  if (range_of(index, ranges).low < 0) return false;
  return range_of(divisor - index, ranges).low >= 1;
}

// The factor that the index is, of that kind; nullptr where it is anything else.
const IndexFactor* lone_factor(const Index& index, Kind kind) {
  const bool is_one = index.constant == 0 && index.terms.size() == 1 && index.terms[0].coefficient == 1 &&
                      index.terms[0].factors.size() == 1 && index.terms[0].factors[0].kind == kind;
  return is_one ? &index.terms[0].factors[0] : nullptr;
}

// Is there a division that computing the index takes, itself or within a factor?
bool divides(const Index& index) {
  return std::any_of(index.terms.begin(), index.terms.end(), [](const IndexTerm& term) {
    return std::any_of(term.factors.begin(), term.factors.end(),
                       [](const IndexFactor& factor) { return factor.kind != Kind::kSymbol; });
  });
}

}  // namespace

Index symbol_index(Symbol symbol) { return of_factor({Kind::kSymbol, symbol, nullptr, nullptr}); }

Index operator+(const Index& left, const Index& right) {
  std::vector<IndexTerm> terms = left.terms;
  terms.insert(terms.end(), right.terms.begin(), right.terms.end());
  return collected(left.constant + right.constant, std::move(terms));
}

Index operator-(const Index& left, const Index& right) { return left + right * Index(-1); }

Index operator*(const Index& left, const Index& right) {
  std::vector<IndexTerm> terms;
  for (const IndexTerm& a : left.terms) {
    for (const IndexTerm& b : right.terms) {
      IndexTerm product{a.coefficient * b.coefficient, a.factors};
      product.factors.insert(product.factors.end(), b.factors.begin(), b.factors.end());
      std::sort(product.factors.begin(), product.factors.end(),
                [](const IndexFactor& one, const IndexFactor& other) { return compare(one, other) < 0; });
      terms.push_back(std::move(product));
    }
    terms.push_back({a.coefficient * right.constant, a.factors});
  }
  for (const IndexTerm& b : right.terms) terms.push_back({left.constant * b.coefficient, b.factors});
  return collected(left.constant * right.constant, std::move(terms));
}

Index floor_divide(const Index& index, const Index& divisor, SymbolRanges ranges) {
  if (divisor == Index(1)) return index;
  Split parts = split(index, divisor, ranges);
  if (is_within(parts.rest, divisor, ranges)) return parts.multiples;
  // (i / a) / b = i / (a · b), and a common factor of all leaves both sides.
  const auto number = as_constant(divisor);
  if (const IndexFactor* inner = lone_factor(parts.rest, Kind::kQuotient); number && inner)
    return parts.multiples + floor_divide(*inner->dividend, *inner->divisor * divisor, ranges);
  // (i % (a · b)) / a = (i / a) % b, where i / a needs no division: that of (x · a + y) % (a · b) is x % b.
  if (const IndexFactor* inner = lone_factor(parts.rest, Kind::kRemainder); number && inner) {
    const auto outer = as_constant(*inner->divisor);
    const Index quotient = outer && *outer % *number == 0 ? floor_divide(*inner->dividend, divisor, ranges) : Index(0);
    if (outer && *outer % *number == 0 && !divides(quotient))
      return parts.multiples + modulo(quotient, Index(*outer / *number), ranges);
  }
  if (number) {
    int64_t common = *number;
    for (const IndexTerm& term : parts.rest.terms) common = std::gcd(common, term.coefficient);
    if (common > 1) {
      Index smaller(floor_of(parts.rest.constant, common));
      for (IndexTerm term : parts.rest.terms) {
        term.coefficient /= common;
        smaller.terms.push_back(std::move(term));
      }
      return parts.multiples + floor_divide(smaller, Index(*number / common), ranges);
    }
  }
  return parts.multiples + of_pair(Kind::kQuotient, parts.rest, divisor);
}

Index modulo(const Index& index, const Index& divisor, SymbolRanges ranges) {
  if (divisor == Index(1)) return Index(0);
  const Index rest = split(index, divisor, ranges).rest;
  if (is_within(rest, divisor, ranges)) return rest;
  // (i % a) % b = i % b where b divides a.
  const auto number = as_constant(divisor);
  if (const IndexFactor* inner = lone_factor(rest, Kind::kRemainder); number && inner)
    if (const auto outer = as_constant(*inner->divisor); outer && *outer % *number == 0)
      return modulo(*inner->dividend, divisor, ranges);
  return of_pair(Kind::kRemainder, rest, divisor);
}

Index ceil_divide(const Index& index, const Index& divisor, SymbolRanges ranges) {
  return floor_divide(index + divisor - Index(1), divisor, ranges);
}

Index minimum(const Index& left, const Index& right, SymbolRanges ranges) {
  const Interval difference = range_of(left - right, ranges);
  if (difference.high <= 0) return left;
  if (difference.low >= 0) return right;
  return of_pair(Kind::kMinimum, left, right);
}

Index recombined(const Index& index, SymbolRanges ranges) {
  for (const IndexTerm& term : index.terms) {
    if (term.factors.size() != 1 || term.factors[0].kind != Kind::kRemainder) continue;
    const IndexFactor& remainder = term.factors[0];
    const auto divisor = as_constant(*remainder.divisor);
    if (!divisor) continue;
    const Index quotient = floor_divide(*remainder.dividend, *divisor, ranges) * Index(term.coefficient * *divisor);
    const bool has_quotient = quotient.constant == 0 && !quotient.terms.empty() &&
                              std::all_of(quotient.terms.begin(), quotient.terms.end(), [&](const IndexTerm& wanted) {
                                return std::any_of(index.terms.begin(), index.terms.end(), [&](const IndexTerm& one) {
                                  return compare(one.factors, wanted.factors) == 0 &&
                                         one.coefficient == wanted.coefficient;
                                });
                              });
    if (!has_quotient) continue;
    Index apart;
    apart.terms = {term};
    return recombined(index - quotient - apart + *remainder.dividend * Index(term.coefficient), ranges);
  }
  return index;
}

int compare(const Index& left, const Index& right) {
  for (size_t i = 0; i < std::min(left.terms.size(), right.terms.size()); ++i) {
    if (const int order = compare(left.terms[i].factors, right.terms[i].factors)) return order;
    if (left.terms[i].coefficient != right.terms[i].coefficient)
      return left.terms[i].coefficient < right.terms[i].coefficient ? -1 : 1;
  }
  if (left.terms.size() != right.terms.size()) return left.terms.size() < right.terms.size() ? -1 : 1;
  return left.constant < right.constant ? -1 : left.constant > right.constant;
}

std::optional<int64_t> as_constant(const Index& index) {
  if (!index.terms.empty()) return std::nullopt;
  return index.constant;
}

std::optional<Symbol> as_symbol(const Index& index) {
  if (index.constant != 0 || index.terms.size() != 1 || index.terms[0].coefficient != 1 ||
      index.terms[0].factors.size() != 1 || index.terms[0].factors[0].kind != Kind::kSymbol)
    return std::nullopt;
  return index.terms[0].factors[0].symbol;
}

bool uses(const Index& index, Symbol symbol) {
  std::vector<bool> found;
  collect_symbols(index, found);
  return symbol < static_cast<Symbol>(found.size()) && found[symbol];
}

void collect_symbols(const Index& index, std::vector<bool>& found) {
  for (const IndexTerm& term : index.terms) {
    for (const IndexFactor& factor : term.factors) {
      if (factor.kind == Kind::kSymbol) {
        if (factor.symbol >= static_cast<Symbol>(found.size())) found.resize(factor.symbol + 1);
        found[factor.symbol] = true;
      } else {
        collect_symbols(*factor.dividend, found);
        collect_symbols(*factor.divisor, found);
      }
    }
  }
}

std::optional<Linear> linear_in(const Index& index, Symbol symbol) {
  Linear result;
  result.rest.constant = index.constant;
  for (const IndexTerm& term : index.terms) {
    Index part;
    part.terms.push_back(term);
    if (!uses(part, symbol)) {
      result.rest = result.rest + part;
      continue;
    }
    IndexTerm others{term.coefficient, {}};
    int times = 0;
    for (const IndexFactor& factor : term.factors) {
      if (factor.kind == Kind::kSymbol && factor.symbol == symbol) {
        ++times;
        continue;
      }
      Index inner = of_factor(factor);
      if (uses(inner, symbol)) return std::nullopt;
      others.factors.push_back(factor);
    }
    if (times != 1) return std::nullopt;
    Index coefficient;
    if (others.factors.empty()) coefficient.constant = others.coefficient;
    else coefficient.terms.push_back(std::move(others));
    result.coefficient = result.coefficient + coefficient;
  }
  return result;
}

Interval range_of(const Index& index, SymbolRanges ranges) {
  Interval result{index.constant, index.constant};
  for (const IndexTerm& term : index.terms) {
    Interval product{term.coefficient, term.coefficient};
    for (const IndexFactor& factor : term.factors) product = multiply(product, range_of(factor, ranges));
    result = add(result, product);
  }
  return result;
}

int64_t known_divisor(const Index& index, SymbolRanges ranges) {
  int64_t divisor = std::abs(index.constant);
  for (const IndexTerm& term : index.terms) {
    int64_t product = std::abs(term.coefficient);
    for (const IndexFactor& factor : term.factors)
      product = saturated(static_cast<__int128>(product) * known_divisor(factor, ranges));
    divisor = std::gcd(divisor, product);
  }
  return divisor;
}

int64_t evaluate(const Index& index, std::span<const int64_t> values) {
  int64_t sum = index.constant;
  for (const IndexTerm& term : index.terms) {
    int64_t product = term.coefficient;
    for (const IndexFactor& factor : term.factors) {
      if (factor.kind == Kind::kSymbol) {
        product *= values[factor.symbol];
        continue;
      }
      const int64_t dividend = evaluate(*factor.dividend, values), divisor = evaluate(*factor.divisor, values);
      if (factor.kind == Kind::kMinimum) {
        product *= std::min(dividend, divisor);
        continue;
      }
      KW_ASSERT(divisor > 0, "an index is divided by a number below 1");
      const int64_t quotient = floor_of(dividend, divisor);
      product *= factor.kind == Kind::kQuotient ? quotient : dividend - quotient * divisor;
    }
    sum += product;
  }
  return sum;
}

Index substitute(const Index& index, const std::function<Index(Symbol)>& replacement, SymbolRanges ranges) {
  Index sum(index.constant);
  for (const IndexTerm& term : index.terms) {
    Index product(term.coefficient);
    for (const IndexFactor& factor : term.factors) {
      if (factor.kind == Kind::kSymbol) {
        product = product * replacement(factor.symbol);
        continue;
      }
      const Index dividend = substitute(*factor.dividend, replacement, ranges),
                  divisor = substitute(*factor.divisor, replacement, ranges);
      product = product * (factor.kind == Kind::kQuotient    ? floor_divide(dividend, divisor, ranges)
                           : factor.kind == Kind::kRemainder ? modulo(dividend, divisor, ranges)
                                                             : minimum(dividend, divisor, ranges));
    }
    sum = sum + product;
  }
  return sum;
}

namespace {

std::string print_number(int64_t number, const IndexWords& words) {
  return words.number ? words.number(number) : std::to_string(number);
}

// Does it go without parentheses beside any operator?
bool is_atom(const IndexFactor& factor) { return factor.kind == Kind::kSymbol || factor.kind == Kind::kMinimum; }

std::string print_factor(const IndexFactor& factor, const IndexWords& words) {
  if (factor.kind == Kind::kSymbol) return words.name(factor.symbol);
  if (factor.kind == Kind::kMinimum)
    return std::string(words.minimum) + "(" + print_index(*factor.dividend, words) + ", " +
           print_index(*factor.divisor, words) + ")";
  const auto operand = [&](const Index& index, bool of_left) {
    std::string text = print_index(index, words);
    const bool plain = as_constant(index)
                           ? index.constant >= 0
                           : index.constant == 0 && index.terms.size() == 1 && index.terms[0].coefficient == 1 &&
                                 (index.terms[0].factors.size() == 1) &&
                                 (of_left || is_atom(index.terms[0].factors[0]));
    return plain ? text : "(" + text + ")";
  };
  return operand(*factor.dividend, true) +
         std::string(factor.kind == Kind::kQuotient ? words.quotient : words.remainder) +
         operand(*factor.divisor, false);
}

// Quotients and remainders bind like products, so that only the first factor may go without parentheses.
std::string print_term(const IndexTerm& term, int64_t coefficient, const IndexWords& words) {
  std::vector<const IndexFactor*> factors;
  for (const IndexFactor& factor : term.factors) factors.push_back(&factor);
  std::stable_sort(factors.begin(), factors.end(),
                   [](const IndexFactor* left, const IndexFactor* right) { return is_atom(*left) < is_atom(*right); });
  std::string text;
  for (size_t i = 0; i < factors.size(); ++i) {
    std::string one = print_factor(*factors[i], words);
    if (i > 0 && !is_atom(*factors[i])) one = "(" + one + ")";
    text += (i > 0 ? " * " : "") + one;
  }
  return coefficient == 1 ? text : text + " * " + print_number(coefficient, words);
}

}  // namespace

std::string print_index(const Index& index, const IndexWords& words) {
  // What counts in the largest steps first, as people write offsets.
  std::vector<const IndexTerm*> terms;
  for (const IndexTerm& term : index.terms) terms.push_back(&term);
  std::stable_sort(terms.begin(), terms.end(), [](const IndexTerm* left, const IndexTerm* right) {
    if ((left->coefficient < 0) != (right->coefficient < 0)) return right->coefficient < 0;
    if (left->factors.size() != right->factors.size()) return left->factors.size() > right->factors.size();
    return std::abs(left->coefficient) > std::abs(right->coefficient);
  });
  std::string text;
  const bool starts = index.constant > 0 && !terms.empty() && terms[0]->coefficient < 0;  // 150 - start
  if (starts) text = print_number(index.constant, words);
  for (const IndexTerm* term : terms) {
    const bool negative = term->coefficient < 0;
    if (text.empty()) {
      text = negative ? print_number(term->coefficient, words) + " * " + [&] {
        const std::string rest = print_term(*term, 1, words);
        return is_atom(term->factors[0]) && term->factors.size() == 1 ? rest : "(" + rest + ")";
      }()
                      : print_term(*term, term->coefficient, words);
    } else {
      text += (negative ? " - " : " + ") + print_term(*term, std::abs(term->coefficient), words);
    }
  }
  if (text.empty()) return print_number(index.constant, words);
  if (index.constant > 0 && !starts) text += " + " + print_number(index.constant, words);
  if (index.constant < 0) text += " - " + print_number(-index.constant, words);
  return text;
}

}  // namespace kw::kernel
