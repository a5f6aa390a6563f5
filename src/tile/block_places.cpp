#include "tile/block_places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "support/error.hpp"

namespace kw::tile {
namespace {

// CUDA starts no more.
constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();

bool runs_as_one(const Program& program, Symbol symbol) {
  return program.consumers.count > 1 && program.consumers.along == symbol;
}

Symbol symbol_of_kind(const Program& program, SymbolKind kind) {
  for (size_t symbol = 0; symbol < program.symbols.size(); ++symbol)
    if (program.symbols[symbol].kind == kind) return static_cast<Symbol>(symbol);
  return -1;
}

// Finds the places one after the other. What has a name is given to `Names`, which answers with its symbol.
template <typename Names>
class Placement {
 public:
  Placement(const Program& program, Names& names) : program_(program), names_(names), ranges_(ranges_of(program)) {}

  void run() {
    Index blocks(1);
    for (const Symbol symbol : program_.grid) blocks = blocks * launched_along(program_, symbol);
    const int64_t most = std::clamp<int64_t>(kernel::range_of(blocks, ranges_).high, 1, kMostBlocks);
    number_ = kernel::symbol_index(note(names_.number(most - 1), {0, most - 1}));
    std::vector<Symbol> slower = program_.grid;
    Index left = number_;
    if (program_.order.grouped >= 0) {
      std::erase(slower, program_.order.grouped);
      std::erase(slower, program_.order.along);
      const Index plane = count(program_.order.grouped) * count(program_.order.along);
      place_group(slower.empty() ? number_
                                 : named(names_.name_of_number() + "_of_plane", quotient_or_rest(number_, plane, false),
                                         range_of(plane - Index(1))));
      left = quotient_or_rest(number_, plane, true);
    }
    for (const Symbol symbol : slower)
      if (count(symbol) == Index(1)) give(symbol, Index(0));
    std::erase_if(slower, [&](Symbol symbol) { return count(symbol) == Index(1); });
    for (size_t at = slower.size(); at-- > 0;) {
      give(slower[at], at == 0 ? left : quotient_or_rest(left, count(slower[at]), false));
      left = quotient_or_rest(left, count(slower[at]), true);
    }
    if (program_.consumers.count == 1 || program_.consumers.along < 0) return;
    const int64_t members = program_.consumers.count;
    const Symbol consumer = note(names_.consumer(members), {0, members - 1});
    names_.place(program_.consumers.along, pair_ * Index(members) + kernel::symbol_index(consumer));
  }

 private:
  // Where there is no block, there is none to be placed.
  Index count(Symbol symbol) const {
    const Index count = launched_along(program_, symbol);
    return count == Index(0) ? Index(1) : count;
  }

  // Of a position that is this at most.
  kernel::SymbolRange range_of(const Index& index) const {
    const kernel::Interval reach = kernel::range_of(index, ranges_);
    return {0, std::max<int64_t>(reach.high, 0)};
  }

  Index quotient_or_rest(const Index& index, const Index& divisor, bool quotient) const {
    return quotient ? kernel::floor_divide(index, divisor, ranges_) : kernel::modulo(index, divisor, ranges_);
  }

  // `count` rows of blocks at a time, column by column: neighbours share what they read.
  void place_group(const Index& within) {
    const Symbol rows = program_.order.grouped, columns = program_.order.along;
    const Index row_count = count(rows), group = Index(program_.order.count) * count(columns);
    const std::string row = name_of(rows);
    const Index first = named("first_" + row, quotient_or_rest(within, group, true) * Index(program_.order.count),
                              range_of(row_count - Index(1)));
    const Index grouped = named("grouped_" + row,
                                kernel::minimum(row_count - first, Index(program_.order.count), ranges_),
                                {1, program_.order.count});
    const Index in_group = quotient_or_rest(within, group, false);
    give(rows, first + quotient_or_rest(in_group, grouped, false));
    give(columns, quotient_or_rest(in_group, grouped, true));
  }

  std::string name_of(Symbol symbol) const {
    return program_.symbols[symbol].name + (runs_as_one(program_, symbol) ? "_pair" : "");
  }

  void give(Symbol symbol, const Index& place) {
    if (runs_as_one(program_, symbol)) pair_ = named(name_of(symbol), place, range_of(count(symbol) - Index(1)));
    else names_.place(symbol, place);
  }

  // `known`: what the value is said to be, where its own range is wider.
  Index named(const std::string& name, const Index& value, kernel::SymbolRange known) {
    if (kernel::as_constant(value)) return value;
    const kernel::Interval reach = kernel::range_of(value, ranges_);
    const kernel::SymbolRange range = {std::max(reach.low, known.low), std::min(reach.high, known.high)};
    return kernel::symbol_index(note(names_.named(name, value, range), range));
  }

  Symbol note(Symbol symbol, kernel::SymbolRange range) {
    if (ranges_.size() <= static_cast<size_t>(symbol)) ranges_.resize(static_cast<size_t>(symbol) + 1);
    ranges_[symbol] = range;
    return symbol;
  }

  const Program& program_;
  Names& names_;
  std::vector<kernel::SymbolRange> ranges_;  // [symbol]
  Index number_, pair_;
};

// Adds what is found to the program.
class Additions {
 public:
  Additions(const Program& before, Program& program, std::string number)
      : before_(before), program_(program), number_(unused(std::move(number), "_id")) {}

  const std::string& name_of_number() const { return number_; }
  Symbol number(int64_t last) { return add({number_, SymbolKind::kBlock, {0, last}, {}}); }
  Symbol consumer(int64_t count) { return add({unused("consumer", "_"), SymbolKind::kConsumer, {0, count - 1}, {}}); }
  Symbol named(const std::string& name, const Index& value, kernel::SymbolRange range) {
    SymbolInfo info{unused(name, "_"), SymbolKind::kNamed, range, {}};
    info.value = value;
    info.dtype = DType::i32;
    const Symbol symbol = add(std::move(info));
    program_.places.push_back(symbol);
    return symbol;
  }
  void place(Symbol symbol, const Index& place) {
    program_.symbols[symbol].value = place;
    program_.places.push_back(symbol);
  }

 private:
  std::string unused(std::string name, const std::string& suffix) const {
    const auto has = [&](const auto& list) {
      return std::any_of(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
    };
    while (has(before_.symbols) || has(before_.buffers) || has(before_.values)) name += suffix;
    return name;
  }
  Symbol add(SymbolInfo info) {
    program_.symbols.push_back(std::move(info));
    return static_cast<Symbol>(program_.symbols.size()) - 1;
  }

  const Program& before_;
  Program& program_;
  const std::string number_;
};

// Compares what is found with what the program has.
class Comparison {
 public:
  explicit Comparison(const Program& program) : program_(program) {}

  bool is_same() const { return same_ && next_ == program_.places.size(); }

  std::string name_of_number() const { return ""; }
  Symbol number(int64_t last) {
    const Symbol symbol = number_of_block(program_);
    return expect(symbol >= 0 && program_.symbols[symbol].range == kernel::SymbolRange{0, last}, symbol);
  }
  Symbol consumer(int64_t count) {
    const Symbol symbol = number_of_consumer(program_);
    return expect(symbol >= 0 && program_.symbols[symbol].range == kernel::SymbolRange{0, count - 1}, symbol);
  }
  Symbol named(const std::string&, const Index& value, kernel::SymbolRange) {
    const Symbol symbol = next();
    return expect(
        symbol >= 0 && program_.symbols[symbol].kind == SymbolKind::kNamed && program_.symbols[symbol].value == value,
        symbol);
  }
  void place(Symbol symbol, const Index& place) {
    expect(next() == symbol && program_.symbols[symbol].value == place, symbol);
  }

 private:
  Symbol next() { return next_ < program_.places.size() ? program_.places[next_++] : -1; }
  Symbol expect(bool holds, Symbol symbol) {
    same_ = same_ && holds;
    return std::max(symbol, 0);
  }

  const Program& program_;
  size_t next_ = 0;
  bool same_ = true;
};

}  // namespace

Index launched_along(const Program& program, Symbol symbol) {
  const Index& count = program.symbols[symbol].count;
  return runs_as_one(program, symbol) ? kernel::floor_divide(count, Index(program.consumers.count), ranges_of(program))
                                      : count;
}

void place_blocks(Program& program, const std::string& number) {
  KW_ASSERT(program.places.empty() && !program.grid.empty(), "blocks are placed once, in a grid");
  const Program before = program;
  Additions additions(before, program, number);
  Placement(before, additions).run();
}

Symbol number_of_block(const Program& program) { return symbol_of_kind(program, SymbolKind::kBlock); }
Symbol number_of_consumer(const Program& program) { return symbol_of_kind(program, SymbolKind::kConsumer); }

std::string fault_of_places(const Program& program) {
  const auto count = [&](SymbolKind kind) {
    return std::count_if(program.symbols.begin(), program.symbols.end(),
                         [&](const SymbolInfo& symbol) { return symbol.kind == kind; });
  };
  if (program.places.empty())
    return count(SymbolKind::kBlock) + count(SymbolKind::kConsumer) > 0 ? "blocks are numbered, but not placed" : "";
  if (program.grid.empty() || count(SymbolKind::kBlock) != 1) return "blocks that have places are numbered, in a grid";
  const auto is_there = [&](Symbol symbol) {
    return symbol >= 0 && symbol < static_cast<Symbol>(program.symbols.size());
  };
  if (!std::all_of(program.places.begin(), program.places.end(), is_there))
    return "the places name a symbol that the program does not have";
  Comparison comparison(program);
  Placement(program, comparison).run();
  return comparison.is_same() ? "" : "the places of blocks are not those of the grid in its order";
}

}  // namespace kw::tile
