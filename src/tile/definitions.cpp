#include "tile/definitions.hpp"

#include <algorithm>
#include <cmath>

namespace kw::tile {

bool has_named_indices(const Program& program) {
  return std::any_of(program.symbols.begin(), program.symbols.end(),
                     [](const SymbolInfo& symbol) { return symbol.kind == SymbolKind::kNamed; });
}

Index written_out(const Program& program, const Index& index) {
  std::vector<bool> used;
  collect_symbols(index, used);
  bool names = false;
  for (size_t symbol = 0; symbol < used.size(); ++symbol)
    names = names || (used[symbol] && program.symbols[symbol].kind == SymbolKind::kNamed);
  if (!names) return index;
  const auto value = [&](Symbol symbol) {
    const SymbolInfo& info = program.symbols[symbol];
    return info.kind == SymbolKind::kNamed ? written_out(program, info.value) : kernel::symbol_index(symbol);
  };
  return kernel::substitute(index, value, ranges_of(program));
}

Program written_out(const Program& program) {
  Program result = program;
  for (SymbolInfo& symbol : result.symbols)
    for (Index* index : {&symbol.value, &symbol.count}) *index = written_out(program, *index);
  for_each_mutable(result.body, [&](Instruction& one) {
    for (Index* index : {&one.index, &one.begin, &one.end}) *index = written_out(program, *index);
    for (Access* access : {&one.access, &one.destination})
      for (Coordinate& coordinate : access->coordinates)
        for (Index* index : {&coordinate.index, &coordinate.sum.first}) *index = written_out(program, *index);
  });
  return result;
}

bool leaves_32_bits(const Index& index, kernel::SymbolRanges ranges) {
  constexpr double kMost = INT32_MAX;
  double sum = std::abs(static_cast<double>(index.constant));
  for (const kernel::IndexTerm& term : index.terms) {
    Index part;
    part.terms = {term};
    const kernel::Interval reach = kernel::range_of(part, ranges);
    sum += std::max(std::abs(static_cast<double>(reach.low)), std::abs(static_cast<double>(reach.high)));
    for (const kernel::IndexFactor& factor : term.factors)
      if (factor.kind != kernel::IndexFactor::Kind::kSymbol &&
          (leaves_32_bits(*factor.dividend, ranges) || leaves_32_bits(*factor.divisor, ranges)))
        return true;
  }
  return sum > kMost;
}

bool is_far(const Program& program, const Access& access) {
  const kernel::Interval reach = kernel::range_of(written_out(program, offset_of(program, access)), ranges_of(program));
  return reach.high > INT32_MAX || reach.low < INT32_MIN;
}

kernel::SymbolRange range_of_named(const Program& program, const Index& value) {
  const kernel::Interval reach = kernel::range_of(written_out(program, value), ranges_of(program));
  return {reach.low, reach.high, 1};
}

}  // namespace kw::tile
