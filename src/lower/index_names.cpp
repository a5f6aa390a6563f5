#include "lower/index_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tile/definitions.hpp"

namespace kw::lower {

using kernel::IndexFactor;
using kernel::IndexTerm;
using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using Body = std::vector<Instruction>;

namespace {

Index index_of(IndexTerm term) {
  Index index;
  index.terms = {std::move(term)};
  return index;
}

bool is_symbol(const IndexFactor& factor) { return factor.kind == IndexFactor::Kind::kSymbol; }

// Is there more to it than a symbol and a number, along some lane?
bool deserves_name(const tile::Program& program, const Index& index) {
  return !kernel::as_symbol(index) && !index.terms.empty() && !tile::lanes_of(program, index).empty() &&
         (index.terms.size() > 1 || index.constant != 0 || index.terms[0].factors.size() > 1 ||
          index.terms[0].coefficient != 1 || !is_symbol(index.terms[0].factors[0]));
}

// Calls visit(part) for each quotient and remainder in the index as often as it is written there, inner ones first.
void for_each_part(const Index& index, const std::function<void(const Index&)>& visit) {
  for (const IndexTerm& term : index.terms)
    for (const IndexFactor& factor : term.factors) {
      if (is_symbol(factor)) continue;
      for_each_part(*factor.dividend, visit);
      for_each_part(*factor.divisor, visit);
      visit(index_of({1, {factor}}));
    }
}

// Loops that are walked as one are called after all of them and end in "step".
std::string short_name(const std::string& name) {
  constexpr size_t kLongest = 24;
  return name.size() <= kLongest ? name : name.substr(name.rfind('_') + 1);
}

// What the quotient or remainder is: "phase_over_2_mod_2" for `phase / 2 % 2`.
std::string name_of_part(const tile::Program& program, const Index& part) {
  if (const auto symbol = kernel::as_symbol(part)) return short_name(program.symbols[*symbol].name);
  const IndexFactor& factor = part.terms.back().factors.back();
  const Index alone = index_of({1, {factor}});
  if (!(alone == part)) return name_of_part(program, alone) + "_place";
  if (factor.kind == IndexFactor::Kind::kMinimum) return name_of_part(program, *factor.dividend) + "_at_most";
  const bool divides = factor.kind == IndexFactor::Kind::kQuotient;
  const auto divisor = kernel::as_constant(*factor.divisor);
  const std::string of = divisor ? fmt::format("{}_{}", divides ? "over" : "mod", *divisor)
                                 : (divides ? "quotient" : "remainder");
  return name_of_part(program, *factor.dividend) + "_" + of;
}

class IndexNames {
 public:
  explicit IndexNames(tile::Program& program) : program_(program), maps_and_folds_(tile::maps_and_folds(program)) {}

  void run() {
    std::vector<const Instruction*> loops;
    visit(program_.body, loops);
    while (const std::optional<Index> part = widest_repeated()) name_part(*part);
    tile::for_each_mutable(program_.body, [&](Instruction& one) { write_with_names(one); });
    define(program_.body, nullptr);
  }

 private:
  struct Named {
    Index index;  // written out
    Symbol symbol;
    bool is_part;                            // a quotient or remainder that no lane moves
    std::vector<const Instruction*> scopes;  // loops that define it; nullptr: the program
  };

  // --- What an index is made of ---

  // The sums of its terms that vary along the same lanes, with what the block's position adds where they are an axis.
  std::vector<Index> parts_by_lanes(const Index& index) const {
    std::vector<Index> parts;
    std::vector<std::vector<Symbol>> lanes;
    for (const IndexTerm& term : index.terms) {
      const std::vector<Symbol> own = tile::lanes_of(program_, index_of(term));
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
    if (!maps_and_folds_) return parts.size() == 1 ? std::vector<Index>{index} : parts;
    for (Index& part : parts)
      if (const auto start = start_of_block(part, index)) part = part + *start;
    return parts;
  }

  // The index of an axis, of which the part is a multiple; else the part itself.
  Index unscaled(const Index& part) const {
    if (!maps_and_folds_ || part.constant != 0 || part.terms.size() != 2) return part;
    for (const IndexTerm& term : part.terms) {
      const Index lane = index_of(term);
      if (const auto start = start_of_block(lane, part); start && lane + *start == part) {
        Index axis = part;
        for (IndexTerm& one : axis.terms) one.coefficient /= term.coefficient;
        return axis;
      }
    }
    return part;
  }

  // Of the index of an axis that blocks share out, or a loop walks, times a number: what the block's position, or where
  // the iteration begins, adds to its lane's.
  std::optional<Index> start_of_block(const Index& part, const Index& index) const {
    if (part.terms.size() != 1 || part.terms[0].factors.size() != 1) return std::nullopt;
    const IndexFactor& lane = part.terms[0].factors[0];
    if (!is_symbol(lane) || program_.symbols[lane.symbol].kind != tile::SymbolKind::kLane) return std::nullopt;
    for (const IndexTerm& term : index.terms) {
      if (term.factors.size() != 1 || !is_symbol(term.factors[0])) continue;
      const tile::SymbolInfo& block = program_.symbols[term.factors[0].symbol];
      const std::string& name = program_.symbols[lane.symbol].name;
      const int64_t width = tile::width_of(program_, lane.symbol);
      const bool shared_out = block.kind == tile::SymbolKind::kGrid && block.name == name + "_block" &&
                              term.coefficient == part.terms[0].coefficient * width;
      const bool walked = block.kind == tile::SymbolKind::kLoop && block.name == name + "_start" &&
                          term.coefficient == part.terms[0].coefficient;
      if (shared_out || walked) return index_of(term);
    }
    return std::nullopt;
  }

  // The terms that no lane moves.
  Index without_lanes(const Index& index) const {
    Index rest;
    for (const IndexTerm& term : index.terms)
      if (const Index one = index_of(term); tile::lanes_of(program_, one).empty()) rest.terms.push_back(term);
    return rest;
  }

  // --- What gets a name ---

  void visit(const Body& body, std::vector<const Instruction*>& loops) {
    for (const Instruction& one : body) {
      if (one.kind == Kind::kIndex) note(one.index, loops);
      if (one.mode == tile::CopyMode::kPlain)  // the bulk copy engine is told where its box begins, nothing else
        for (const tile::Coordinate& coordinate : one.access.coordinates) note(coordinate.index, loops);
      if (one.kind == Kind::kFor) loops.push_back(&one);
      visit(one.body, loops);
      if (one.kind == Kind::kFor) loops.pop_back();
      visit(one.otherwise_body, loops);
    }
  }

  // Dividends first: `row_index / 7` is then written with the name of `row_block * 16 + row`.
  void note(const Index& index, const std::vector<const Instruction*>& loops) {
    for (const IndexTerm& term : index.terms)
      for (const IndexFactor& factor : term.factors)
        if (!is_symbol(factor)) note(*factor.dividend, loops);
    for (const Index& part : parts_by_lanes(index))
      if (deserves_name(program_, part)) name_along_lanes(unscaled(part), loops);
  }

  static const Instruction* scope_of(const Index& index, const std::vector<const Instruction*>& loops) {
    const Instruction* scope = nullptr;
    for (const Instruction* loop : loops)
      if (kernel::uses(index, loop->symbol)) scope = loop;
    return scope;
  }

  void name_along_lanes(const Index& index, const std::vector<const Instruction*>& loops) {
    const Instruction* scope = scope_of(index, loops);
    auto known = std::find_if(named_.begin(), named_.end(), [&](const Named& one) { return one.index == index; });
    if (known == named_.end()) {
      const std::string lane = program_.symbols[tile::lanes_of(program_, index).back()].name;
      add_name(index, spelled_out(index), lane + "_index", false, {});
      known = named_.end() - 1;
    }
    if (std::find(known->scopes.begin(), known->scopes.end(), scope) != known->scopes.end()) return;
    known->scopes.push_back(scope);
    definitions_[scope].push_back(known->symbol);
  }

  void add_name(const Index& index, Index value, const std::string& name, bool is_part,
                std::vector<const Instruction*> scopes) {
    const auto symbol = static_cast<Symbol>(program_.symbols.size());
    const kernel::SymbolRange range = tile::range_of_named(program_, index);
    program_.symbols.push_back(
        {.name = unused_name(name), .kind = tile::SymbolKind::kNamed, .range = range, .count = {}});
    program_.symbols.back().value = std::move(value);
    named_.push_back({index, symbol, is_part, std::move(scopes)});
  }

  std::string unused_name(const std::string& base) const {
    const auto has = [](const auto& list, const std::string& name) {
      return std::any_of(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
    };
    std::string name = base;
    for (int number = 2; has(program_.symbols, name) || has(program_.buffers, name) || has(program_.values, name);
         ++number)
      name = fmt::format("{}_{}", base, number);
    return name;
  }

  // --- Quotients and remainders: the widest first, since what only stands in a part that has a name is written once
  // ---

  std::optional<Index> widest_repeated() const {
    constexpr int kLeast = 3;
    std::vector<std::pair<Index, int>> counts;
    const auto count = [&](const Index& index) {
      for_each_part(index, [&](const Index& part) {
        const auto known = std::find_if(counts.begin(), counts.end(),
                                        [&](const auto& one) { return one.first == part; });
        if (known != counts.end()) ++known->second;
        else if (tile::lanes_of(program_, part).empty()) counts.emplace_back(part, 1);
      });
    };
    for (const auto& [loop, symbols] : definitions_)
      for (const Symbol symbol : symbols) count(program_.symbols[symbol].value);
    tile::for_each(program_.body, [&](const Instruction& one) {
      if (one.kind == Kind::kIndex) count(shortened(one.index));
      if (one.mode != tile::CopyMode::kPlain) return;
      for (const tile::Coordinate& coordinate : one.access.coordinates) count(shortened(coordinate.index));
    });
    std::optional<Index> widest;
    size_t width = 0;
    for (const auto& [part, times] : counts)
      if (const size_t size = text_of(part).size(); times >= kLeast && size > width) {
        widest = part;
        width = size;
      }
    return widest;
  }

  std::string text_of(const Index& index) const {
    const auto name = [&](Symbol symbol) { return program_.symbols[symbol].name; };
    return kernel::print_index(index, {name, " // ", " % "});
  }

  void name_part(const Index& part) {
    add_name(part, {}, name_of_part(program_, part), true, scopes_of(part));
    const Symbol symbol = named_.back().symbol;
    for (const Named& one : named_) program_.symbols[one.symbol].value = value_of(one);
    for (const Instruction* scope : named_.back().scopes) {
      std::vector<Symbol>& symbols = definitions_[scope];
      const auto user = std::find_if(symbols.begin(), symbols.end(),
                                     [&](Symbol one) { return kernel::uses(program_.symbols[one].value, symbol); });
      symbols.insert(user, symbol);
    }
  }

  // With names for its parts, but not for itself.
  Index value_of(const Named& named) const {
    if (!named.is_part) return spelled_out(named.index);
    Index part = named.index;
    IndexFactor& factor = part.terms[0].factors[0];
    factor.dividend = std::make_shared<const Index>(shortened(*factor.dividend));
    return part;
  }

  // Where the symbols of the part are known, of all indices that it is written in.
  std::vector<const Instruction*> scopes_of(const Index& part) const {
    std::vector<const Instruction*> scopes, loops;
    const auto note = [&](const Index& index) {
      bool stands_there = false;
      for_each_part(index, [&](const Index& one) { stands_there = stands_there || one == part; });
      const Instruction* scope = scope_of(part, loops);
      if (stands_there && std::find(scopes.begin(), scopes.end(), scope) == scopes.end()) scopes.push_back(scope);
    };
    const std::function<void(const Body&)> walk = [&](const Body& body) {
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

  // --- Indices with names ---

  Index shortened(const Index& index) const {
    for (const Named& one : named_)
      if (one.index == index) return kernel::symbol_index(one.symbol);
    if (const Index axis = unscaled(index); !(axis == index)) {
      const int64_t scale = index.terms[0].coefficient / axis.terms[0].coefficient;
      return shortened(axis) * Index(scale);
    }
    const std::vector<Index> parts = parts_by_lanes(index);
    if (parts.empty() || (parts.size() == 1 && parts[0] == index)) return spelled_out(index);
    Index rest = index;
    for (const Index& part : parts) rest = rest - part;
    Index result = spelled_out(rest);
    for (const Index& part : parts) result = result + shortened(part);
    return result;
  }

  // With names for the quotients and remainders in it, or for what they divide.
  Index spelled_out(const Index& index) const {
    Index result(index.constant);
    for (const IndexTerm& term : index.terms) {
      IndexTerm copy = term;
      for (IndexFactor& factor : copy.factors) {
        if (is_symbol(factor)) continue;
        if (const auto symbol = symbol_of_part(factor)) factor = kernel::symbol_index(*symbol).terms[0].factors[0];
        else factor.dividend = std::make_shared<const Index>(shortened(*factor.dividend));
      }
      result.terms.push_back(std::move(copy));
    }
    return result;
  }

  std::optional<Symbol> symbol_of_part(const IndexFactor& factor) const {
    const Index alone = index_of({1, {factor}});
    for (const Named& one : named_)
      if (one.is_part && one.index == alone) return one.symbol;
    return std::nullopt;
  }

  // A consumer's boxes are copied by a warp that does not know its names.
  void write_with_names(Instruction& one) const {
    if (one.kind == Kind::kIndex) one.index = shortened(one.index);
    const bool plain = one.mode == tile::CopyMode::kPlain;
    if (!plain && program_.consumers.count > 1) return;
    for (tile::Coordinate& coordinate : one.access.coordinates) {
      Index& index = coordinate.index;
      if (!plain) {
        index = spelled_out(index);
      } else if (coordinate.value == tile::kNoValue) {
        index = shortened(index);
      } else {  // what is one number for the block stays apart from what data decide
        const Index of_block = without_lanes(index);
        index = shortened(of_block) + shortened(index - of_block);
      }
    }
  }

  // Loops inside first: what is put before them moves them.
  void define(Body& body, const Instruction* loop) {
    for (Instruction& one : body) {
      define(one.body, one.kind == Kind::kFor ? &one : nullptr);
      define(one.otherwise_body, nullptr);
    }
    const bool begins = loop || &body == &program_.body;
    const auto found = definitions_.find(loop);
    if (!begins || found == definitions_.end()) return;
    Body named;
    for (const Symbol symbol : found->second) {
      Instruction& one = named.emplace_back();
      one.kind = Kind::kDefine;
      one.symbol = symbol;
    }
    body.insert(body.begin(), named.begin(), named.end());
  }

  tile::Program& program_;
  const bool maps_and_folds_;
  std::vector<Named> named_;
  std::map<const Instruction*, std::vector<Symbol>> definitions_;  // [loop] in order; nullptr: the program
};

}  // namespace

void name_indices(tile::Program& program) { IndexNames(program).run(); }

}  // namespace kw::lower
