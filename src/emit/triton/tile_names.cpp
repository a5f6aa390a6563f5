#include "emit/triton/tile_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>

#include "emit/python_text.hpp"
#include "emit/triton/helpers.hpp"
#include "emit/triton/index_parts.hpp"
#include "emit/triton/tile_atomics.hpp"
#include "emit/triton/tile_symbols.hpp"
#include "support/text.hpp"

namespace kw::triton {

using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;

namespace {

// Is there more to it than a symbol and a number, along some lane?
bool deserves_name(const tile::Program& program, const Index& index) {
  return !kernel::as_symbol(index) && !index.terms.empty() && !tile::lanes_of(program, index).empty() &&
         (index.terms.size() > 1 || index.constant != 0 || index.terms[0].factors.size() > 1 ||
          index.terms[0].coefficient != 1 || index.terms[0].factors[0].kind != kernel::IndexFactor::Kind::kSymbol);
}

// What folds and operations are called where nobody named them, in other words.
std::string in_other_words(const std::string& name) {
  static const std::map<std::string, std::string> kWords = {
      {"abs", "magnitude"},  {"all", "everywhere"}, {"any", "anywhere"},
      {"bounded", "place"},  {"filter", "filters"}, {"max", "largest"},
      {"min", "smallest"},   {"pow", "power"},      {"floor_divide", "quotient"},
      {"remainder", "rest"}, {"sign", "signum"},    {"round", "rounded"},
      {"sum", "total"}};
  const auto found = kWords.find(name);
  return found == kWords.end() ? name + "_tile" : found->second;
}

}  // namespace

tile::Program with_python_names(tile::Program program) {
  std::vector<std::string*> names;
  for (tile::SymbolInfo& symbol : program.symbols) names.push_back(&symbol.name);
  for (tile::Buffer& buffer : program.buffers) names.push_back(&buffer.name);
  for (tile::ValueInfo& value : program.values) names.push_back(&value.name);
  std::set<std::string> taken;
  for (const std::string* name : names) taken.insert(*name);
  const bool adds = calls_add(program);  // else nothing printed of it calls `add`
  for (std::string* name : names) {
    static const std::set<std::string> kOwn = {"gl", "gluon", "hopper", "libdevice", "program", "program_of_plane",
                                               "tl", "torch", "triton"};
    if (!python::reserved_names().contains(*name) && !kOwn.contains(*name) &&
        (!is_helper(*name) || (*name == "add" && !adds)))
      continue;
    const std::string wanted = in_other_words(*name);
    std::string other = wanted;
    for (int number = 2; !taken.insert(other).second; ++number) other = fmt::format("{}_{}", wanted, number);
    *name = other;
  }
  return program;
}

IndexNames::IndexNames(const tile::Program& program)
    : program_(program),
      full_rank_(tile::maps_and_folds(program)),
      dimensions_(lane_dimensions(program)),
      ranges_(tile::ranges_of(program)) {
  std::vector<const Instruction*> loops;
  visit(program.body, loops);
  name_repeated_parts();
  find_in_place();
}

// What one of the definitions at the program's beginning names, and nothing else does, is spelled out there.
void IndexNames::find_in_place() {
  std::vector<int> uses(program_.symbols.size()), defining(program_.symbols.size());
  const auto count = [&](const Index& index, std::vector<int>& counts) {
    std::vector<bool> used;
    kernel::collect_symbols(index, used);
    for (size_t symbol = 0; symbol < std::min(used.size(), counts.size()); ++symbol) counts[symbol] += used[symbol];
  };
  for (const auto& [loop, definitions] : definitions_)
    for (const Definition& one : definitions) count(one.index, loop == nullptr ? defining : uses);
  tile::for_each(program_.body, [&](const Instruction& one) {
    for (const Index* index : {&one.begin, &one.end}) count(*index, uses);
    if (one.kind == Kind::kIndex) count(shortened(one.index), uses);
    for (const tile::Coordinate& coordinate : one.access.coordinates) {
      const Index of_block = without_lanes(coordinate.index);
      const bool is_box = one.mode == tile::CopyMode::kBulk && one.kind != Kind::kCopy;  // has its origin alone in text
      if (is_box) count(of_block, uses);
      else if (coordinate.value == tile::kNoValue) count(shortened(coordinate.index), uses);
      else count(shortened(of_block) + shortened(coordinate.index - of_block), uses);
    }
    for (Symbol lane : one.lanes) ++uses[lane];
  });
  for (size_t symbol = 0; symbol < uses.size(); ++symbol)
    if (defining[symbol] == 1 && uses[symbol] == 0)
      if (const auto call = symbol_call(program_, static_cast<Symbol>(symbol)))
        in_place_[static_cast<Symbol>(symbol)] = *call;
}

bool IndexNames::is_in_place(Symbol symbol) const { return in_place_.contains(symbol); }

void IndexNames::visit(const std::vector<Instruction>& body, std::vector<const Instruction*>& loops) {
  for (const Instruction& instruction : body) {
    if (instruction.kind == Kind::kIndex) note(instruction.index, loops);
    if (instruction.mode == tile::CopyMode::kPlain)  // the bulk copy engine is told where its box begins, nothing else
      for (const tile::Coordinate& coordinate : instruction.access.coordinates) note(coordinate.index, loops);
    if (instruction.kind == Kind::kFor) {
      loops.push_back(&instruction);
      visit(instruction.body, loops);
      loops.pop_back();
    }
    if (instruction.kind == Kind::kIf) visit(instruction.body, loops);
    visit(instruction.otherwise_body, loops);
  }
}

// Dividends first: `row_index // 7` is then written with the name of `row_block * 16 + row`.
void IndexNames::note(const Index& index, const std::vector<const Instruction*>& loops) {
  for (const kernel::IndexTerm& term : index.terms)
    for (const kernel::IndexFactor& factor : term.factors)
      if (factor.kind != kernel::IndexFactor::Kind::kSymbol) note(*factor.dividend, loops);
  for (const Index& part : parts_by_lanes(index))
    if (deserves_name(program_, part)) define(unscaled(part), loops);
}

// The index of an axis, of which the part is a multiple; else the part itself.
Index IndexNames::unscaled(const Index& part) const {
  if (!full_rank_ || part.constant != 0 || part.terms.size() != 2) return part;
  for (const kernel::IndexTerm& term : part.terms) {
    Index lane;
    lane.terms = {term};
    if (const auto start = start_of_block(lane, part); start && lane + *start == part) {
      Index axis = part;
      for (kernel::IndexTerm& one : axis.terms) one.coefficient /= term.coefficient;
      return axis;
    }
  }
  return part;
}

std::vector<Index> IndexNames::parts_by_lanes(const Index& index) const {
  std::vector<Index> parts;
  std::vector<std::vector<Symbol>> lanes;
  for (const kernel::IndexTerm& term : index.terms) {
    Index one;
    one.terms = {term};
    const std::vector<Symbol> own = tile::lanes_of(program_, one);
    if (own.empty()) continue;
    const auto place = std::find(lanes.begin(), lanes.end(), own) - lanes.begin();
    if (place == std::ssize(lanes)) {
      lanes.push_back(own);
      parts.emplace_back();
    }
    parts[place].terms.push_back(term);
  }
  // Beside folds and products an index along one set of lanes is named whole: depthwise convolutions, of many places
  // each, take fewer registers so.
  if (!full_rank_) return parts.size() == 1 ? std::vector<Index>{index} : parts;
  for (Index& part : parts)
    if (const auto start = start_of_block(part, index)) part = part + *start;
  return parts;
}

// Of the index of an axis that blocks share out, or a loop walks, times a number: what the block's position, or where
// the iteration begins, adds to its lane's.
std::optional<Index> IndexNames::start_of_block(const Index& part, const Index& index) const {
  if (part.terms.size() != 1 || part.terms[0].factors.size() != 1) return std::nullopt;
  const kernel::IndexFactor& lane = part.terms[0].factors[0];
  if (lane.kind != kernel::IndexFactor::Kind::kSymbol || program_.symbols[lane.symbol].kind != tile::SymbolKind::kLane)
    return std::nullopt;
  for (const kernel::IndexTerm& term : index.terms) {
    if (term.factors.size() != 1 || term.factors[0].kind != kernel::IndexFactor::Kind::kSymbol) continue;
    const tile::SymbolInfo& block = program_.symbols[term.factors[0].symbol];
    const std::string& name = program_.symbols[lane.symbol].name;
    const int64_t width = tile::width_of(program_, lane.symbol);
    const bool shared_out = block.kind == tile::SymbolKind::kGrid && block.name == name + "_block" &&
                            term.coefficient == part.terms[0].coefficient * width;
    const bool walked = block.kind == tile::SymbolKind::kLoop && block.name == name + "_start" &&
                        term.coefficient == part.terms[0].coefficient;
    if (!shared_out && !walked) continue;
    Index start;
    start.terms = {term};
    return start;
  }
  return std::nullopt;
}

void IndexNames::define(const Index& index, const std::vector<const Instruction*>& loops) {
  const Instruction* scope = nullptr;
  for (const Instruction* loop : loops)
    if (kernel::uses(index, loop->symbol)) scope = loop;
  auto known = std::find_if(named_.begin(), named_.end(), [&](const Named& one) { return one.index == index; });
  const Index text = spelled_out(index);
  if (known == named_.end()) {
    const std::vector<Symbol> lanes = tile::lanes_of(program_, index);
    const std::string name = unused_name(program_.symbols[lanes.back()].name + "_index");
    const auto symbol = static_cast<Symbol>(program_.symbols.size() + named_.size());
    const kernel::Interval reach = kernel::range_of(index, ranges_);
    named_.push_back({index, symbol, name, lanes, may_overflow(text), {}});
    ranges_.push_back({reach.low, reach.high});
    known = named_.end() - 1;
  }
  if (std::find(known->scopes.begin(), known->scopes.end(), scope) != known->scopes.end()) return;
  known->scopes.push_back(scope);
  definitions_[scope].push_back({known->name, text});
}

std::string IndexNames::unused_name(const std::string& base) const {
  std::string name = base;
  for (int number = 2; is_taken(name); ++number) name = fmt::format("{}_{}", base, number);
  return name;
}

void IndexNames::name_repeated_parts() {
  while (const std::optional<Index> part = widest_repeated()) name_part(*part);
}

std::optional<Index> IndexNames::widest_repeated() const {
  constexpr int kLeast = 3;
  std::vector<std::pair<Index, int>> counts;
  const auto count = [&](const Index& index) {
    for_each_part(index, [&](const Index& part) {
      const auto known = std::find_if(counts.begin(), counts.end(), [&](const auto& one) { return one.first == part; });
      if (known != counts.end()) ++known->second;
      else if (lanes_of(part).empty()) counts.emplace_back(part, 1);
    });
  };
  for (const auto& [loop, definitions] : definitions_)
    for (const Definition& one : definitions) count(one.index);
  tile::for_each(program_.body, [&](const Instruction& one) {
    if (one.kind == Kind::kIndex) count(shortened(one.index));
    if (one.mode != tile::CopyMode::kPlain) return;
    for (const tile::Coordinate& coordinate : one.access.coordinates) count(shortened(coordinate.index));
  });
  std::optional<Index> widest;
  size_t width = 0;
  for (const auto& [part, times] : counts)
    if (const size_t size = spelled(part, {}).size(); times >= kLeast && size > width) {
      widest = part;
      width = size;
    }
  return widest;
}

void IndexNames::name_part(const Index& part) {
  const auto symbol = static_cast<Symbol>(program_.symbols.size() + named_.size());
  const std::string name = unused_name(name_of_part(part, [&](Symbol one) { return name_of(one); }));
  const kernel::Interval reach = kernel::range_of(part, ranges_);
  named_.push_back({part, symbol, name, {}, may_overflow(part), scopes_of(part), true});
  ranges_.push_back({reach.low, reach.high});
  for (auto& [loop, definitions] : definitions_)
    for (Definition& one : definitions) one.index = definition_of(one.name);
  for (const Instruction* scope : named_.back().scopes) {
    std::vector<Definition>& definitions = definitions_[scope];
    const auto user = std::find_if(definitions.begin(), definitions.end(),
                                   [&](const Definition& one) { return kernel::uses(one.index, symbol); });
    definitions.insert(user, {name, definition_of(name)});
  }
}

Index IndexNames::definition_of(const std::string& name) const {
  const auto named = std::find_if(named_.begin(), named_.end(), [&](const Named& one) { return one.name == name; });
  if (!named->is_part) return spelled_out(named->index);
  Index part = named->index;
  kernel::IndexFactor& factor = part.terms[0].factors[0];
  factor.dividend = std::make_shared<const Index>(shortened(*factor.dividend));
  return part;
}

std::vector<const Instruction*> IndexNames::scopes_of(const Index& part) const {
  std::vector<const Instruction*> scopes, loops;
  const auto note = [&](const Index& index) {
    bool stands_there = false;
    for_each_part(index, [&](const Index& one) { stands_there = stands_there || one == part; });
    if (!stands_there) return;
    const Instruction* scope = nullptr;
    for (const Instruction* loop : loops)
      if (kernel::uses(part, loop->symbol)) scope = loop;
    if (std::find(scopes.begin(), scopes.end(), scope) == scopes.end()) scopes.push_back(scope);
  };
  const std::function<void(const std::vector<Instruction>&)> walk = [&](const std::vector<Instruction>& body) {
    for (const Instruction& one : body) {
      if (one.kind == Kind::kIndex) note(one.index);
      for (const tile::Coordinate& coordinate : one.access.coordinates) note(coordinate.index);
      if (one.kind == Kind::kFor) loops.push_back(&one);
      walk(one.body);
      if (one.kind == Kind::kFor) loops.pop_back();
      walk(one.otherwise_body);
    }
  };
  walk(program_.body);
  return scopes;
}

const std::vector<IndexNames::Definition>& IndexNames::at(const Instruction* loop) const {
  static const std::vector<Definition> kNone;
  const auto found = definitions_.find(loop);
  return found == definitions_.end() ? kNone : found->second;
}

Index IndexNames::shortened(const Index& index) const {
  for (const Named& one : named_)
    if (one.index == index) return kernel::symbol_index(one.symbol);
  const std::vector<Index> parts = parts_by_lanes(index);
  if (const Index axis = unscaled(index); !(axis == index)) {
    const int64_t scale = index.terms[0].coefficient / axis.terms[0].coefficient;
    return shortened(axis) * Index(scale);
  }
  if (parts.empty() || (parts.size() == 1 && parts[0] == index)) return spelled_out(index);
  Index rest = index;
  for (const Index& part : parts) rest = rest - part;
  Index result = spelled_out(rest);
  for (const Index& part : parts) result = result + shortened(part);
  return result;
}

Index IndexNames::spelled_out(const Index& index) const {
  Index result(index.constant);
  for (const kernel::IndexTerm& term : index.terms) {
    kernel::IndexTerm copy = term;
    for (kernel::IndexFactor& factor : copy.factors) {
      if (factor.kind == kernel::IndexFactor::Kind::kSymbol) continue;
      const Named* part = part_of(factor);
      if (part) factor = kernel::symbol_index(part->symbol).terms[0].factors[0];
      else factor.dividend = std::make_shared<const Index>(shortened(*factor.dividend));
    }
    result.terms.push_back(std::move(copy));
  }
  return result;
}

const IndexNames::Named* IndexNames::part_of(const kernel::IndexFactor& factor) const {
  Index alone;
  alone.terms = {{1, {factor}}};
  const auto found = std::find_if(named_.begin(), named_.end(),
                                  [&](const Named& one) { return one.is_part && one.index == alone; });
  return found == named_.end() ? nullptr : &*found;
}

std::string IndexNames::name_of(Symbol symbol) const {
  if (const auto call = in_place_.find(symbol); call != in_place_.end()) return call->second;
  const size_t count = program_.symbols.size();
  return static_cast<size_t>(symbol) < count ? program_.symbols[symbol].name : named_[symbol - count].name;
}

std::vector<Symbol> IndexNames::lanes_of(Symbol symbol) const {
  const size_t count = program_.symbols.size();
  if (static_cast<size_t>(symbol) >= count) return named_[symbol - count].lanes;
  if (program_.symbols[symbol].kind == tile::SymbolKind::kLane) return {symbol};
  return {};
}

std::vector<Symbol> IndexNames::lanes_of(const Index& index) const {
  std::vector<bool> used;
  kernel::collect_symbols(index, used);
  std::vector<Symbol> lanes;
  for (size_t symbol = 0; symbol < used.size(); ++symbol) {
    if (!used[symbol]) continue;
    lanes = united(lanes, lanes_of(static_cast<Symbol>(symbol)));
  }
  return lanes;
}

Index IndexNames::without_lanes(const Index& index) const {
  Index rest = index - along_lanes(index);
  rest.constant = 0;
  return rest;
}

Index IndexNames::along_lanes(const Index& index) const {
  Index moving;
  for (const kernel::IndexTerm& term : index.terms) {
    Index one;
    one.terms = {term};
    if (!lanes_of(one).empty()) moving = moving + one;
  }
  if (moving.terms.size() == index.terms.size()) moving.constant = index.constant;
  return moving;
}

// Sums are taken term by term, so that each term and all sums on the way count.
bool IndexNames::may_overflow(const Index& index) const {
  constexpr double kMost = INT32_MAX;
  const auto largest = [&](const Index& part) {
    const kernel::Interval reach = kernel::range_of(part, ranges_);
    return std::max(std::abs(static_cast<double>(reach.low)), std::abs(static_cast<double>(reach.high)));
  };
  double sum = std::abs(static_cast<double>(index.constant));
  for (const kernel::IndexTerm& term : index.terms) {
    Index part;
    part.terms = {term};
    sum += largest(part);
    for (const kernel::IndexFactor& factor : term.factors)
      if (factor.kind != kernel::IndexFactor::Kind::kSymbol &&
          (may_overflow(*factor.dividend) || may_overflow(*factor.divisor)))
        return true;
  }
  return sum > kMost;
}

std::string IndexNames::widened(Symbol symbol, const std::string& text) const {
  const size_t count = program_.symbols.size();
  if (static_cast<size_t>(symbol) >= count && named_[symbol - count].wide) return text;
  // Triton's interpreter makes Python's numbers of loops' variables, and of their parts, which have no `to`.
  if (static_cast<size_t>(symbol) < count ? program_.symbols[symbol].kind == tile::SymbolKind::kLoop
                                          : named_[symbol - count].is_part)
    return fmt::format("tl.cast({}, tl.int64)", text);
  return text + ".to(tl.int64)";
}

std::string IndexNames::spelled(const Index& index, const std::vector<Symbol>& lanes, bool wide) const {
  const bool cast = wide || may_overflow(index);
  const auto name = [&](Symbol symbol) {
    const std::vector<Symbol> own = lanes_of(symbol);
    const std::string text = name_of(symbol) + (full_rank_ ? dimensions_.spread(own, lanes) : brackets(own, lanes));
    return cast ? widened(symbol, text) : text;
  };
  return kernel::print_index(index, {name, " // ", " % ", {}});
}

std::string IndexNames::spelled_in_python(const Index& index) const {
  return kernel::print_index(index, {[&](Symbol symbol) { return name_of(symbol); }, " // ", " % ", {}});
}

bool IndexNames::is_taken(const std::string& name) const {
  const auto has = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
  };
  return has(program_.symbols) || has(program_.buffers) || has(program_.values) || has(named_);
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
