#include "emit/triton/index_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emit/triton/lane_dimensions.hpp"
#include "emit/triton/tile_symbols.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "tile/box.hpp"

namespace kw::triton {

using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::SymbolKind;

IndexText::IndexText(const tile::Program& program) : program_(program) { find_in_place(); }

// What one of the definitions at the program's beginning names, and nothing else does, is spelled out there.
void IndexText::find_in_place() {
  std::vector<int> uses(program_.symbols.size()), defining(program_.symbols.size());
  const auto count = [&](const Index& index, std::vector<int>& counts) {
    std::vector<bool> used;
    kernel::collect_symbols(index, used);
    for (size_t symbol = 0; symbol < used.size(); ++symbol) counts[symbol] += used[symbol];
  };
  for (const Instruction& one : program_.body)
    if (one.kind == Kind::kDefine) count(program_.symbols[one.symbol].value, defining);
  tile::for_each(program_.body, [&](const Instruction& one) {
    if (one.kind == Kind::kDefine) count(program_.symbols[one.symbol].value, uses);
    for (const Index* index : {&one.begin, &one.end}) count(*index, uses);
    if (one.kind == Kind::kIndex) count(one.index, uses);
    const bool is_box = one.mode == tile::CopyMode::kBulk && one.kind != Kind::kCopy;  // has its origin alone in text
    for (const Index& index : is_box ? tile::box_of(program_, one.access)->origin : std::vector<Index>())
      count(index, uses);
    for (const tile::Coordinate& coordinate : one.access.coordinates)
      if (!is_box) count(coordinate.index, uses);
    for (Symbol lane : one.lanes) ++uses[lane];
  });
  for (size_t symbol = 0; symbol < uses.size(); ++symbol)
    if (defining[symbol] == 1 && uses[symbol] == 1)
      if (const auto call = symbol_call(program_, static_cast<Symbol>(symbol)))
        in_place_[static_cast<Symbol>(symbol)] = *call;
}

bool IndexText::is_in_place(Symbol symbol) const { return in_place_.contains(symbol); }

std::string IndexText::name_of(Symbol symbol) const {
  const auto call = in_place_.find(symbol);
  return call != in_place_.end() ? call->second : program_.symbols[symbol].name;
}

std::string IndexText::widened(Symbol symbol, const std::string& text) const {
  const tile::SymbolInfo& info = program_.symbols[symbol];
  const bool is_named = info.kind == SymbolKind::kNamed;
  if (is_named && info.dtype == DType::i64) return text;
  // Triton's interpreter makes Python's numbers of loops' variables, and of their parts, which have no `to`.
  const bool is_number = info.kind == SymbolKind::kLoop || (is_named && tile::lanes_of(program_, info.value).empty()) ||
                         (info.kind == SymbolKind::kGrid && !program_.places.empty() && info.value.terms.empty());
  return is_number ? fmt::format("tl.cast({}, tl.int64)", text) : text + ".to(tl.int64)";
}

std::string IndexText::spelled(const Index& index, const std::vector<Symbol>& lanes, bool wide) const {
  const auto name = [&](Symbol symbol) {
    const std::vector<Symbol> own = tile::lanes_of(program_, kernel::symbol_index(symbol));
    const std::string text = name_of(symbol) +
                             (program_.rank >= 0 ? spread(program_, own, lanes) : brackets(own, lanes));
    return wide ? widened(symbol, text) : text;
  };
  return kernel::print_index(index, {name, " // ", " % ", "tl.minimum"});
}

std::string IndexText::spelled_in_python(const Index& index) const {
  return kernel::print_index(index, {[&](Symbol symbol) { return name_of(symbol); }, " // ", " % "});
}

std::vector<std::string> IndexText::definitions(const std::vector<Instruction>& body) const {
  std::vector<std::string> lines;
  for (const Instruction& one : body) {
    if (one.kind != Kind::kDefine) break;
    const tile::SymbolInfo& info = program_.symbols[one.symbol];
    const std::vector<Symbol> lanes = tile::lanes_of(program_, info.value);
    lines.push_back(fmt::format("{} = {}", info.name, spelled(info.value, lanes, info.dtype == DType::i64)));
  }
  return lines;
}

bool IndexText::is_taken(const std::string& name) const {
  const auto has = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
  };
  return has(program_.symbols) || has(program_.buffers) || has(program_.values);
}

namespace {

bool divides_negative(const Index& index, kernel::SymbolRanges ranges) {
  for (const kernel::IndexTerm& term : index.terms)
    for (const kernel::IndexFactor& factor : term.factors) {
      if (factor.kind == kernel::IndexFactor::Kind::kSymbol) continue;
      const bool divides = factor.kind != kernel::IndexFactor::Kind::kMinimum;
      if ((divides && kernel::range_of(*factor.dividend, ranges).low < 0) || divides_negative(*factor.dividend, ranges))
        return true;
    }
  return false;
}

}  // namespace

void require_nonnegative_dividends(const tile::Program& program) {
  const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program);
  bool found = false;
  const auto look = [&](const Index& index) { found = found || divides_negative(index, ranges); };
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind == Kind::kDefine) look(program.symbols[one.symbol].value);
    for (const Index* index : {&one.index, &one.begin, &one.end}) look(*index);
    for (const tile::Coordinate& coordinate : one.access.coordinates) look(coordinate.index);
  });
  if (found)
    throw Error(
        ErrorKind::kInternal,
        fmt::format("tile program '{}' has no Triton form: an index divides what may be negative", program.name));
}

std::vector<Symbol> united(std::vector<Symbol> left, const std::vector<Symbol>& right) {
  left.insert(left.end(), right.begin(), right.end());
  std::sort(left.begin(), left.end());
  left.erase(std::unique(left.begin(), left.end()), left.end());
  return left;
}

std::string permuted(const std::string& text, const std::vector<Symbol>& lanes, const std::vector<Symbol>& wanted) {
  std::vector<std::string> order;
  for (Symbol lane : wanted)
    order.push_back(std::to_string(std::find(lanes.begin(), lanes.end(), lane) - lanes.begin()));
  return fmt::format("tl.permute({}, ({}))", text, join(order, ", "));
}

}  // namespace kw::triton
