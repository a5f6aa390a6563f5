#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "support/error.hpp"
#include "tile/definitions.hpp"
#include "tile/rules.hpp"

namespace kw::tile {
namespace {

// Looks for values of the symbols, each at one end of what it can be, for which a coordinate leaves its dimension.
// Symbols are given values in the order in which they depend on each other: sizes, blocks, loops, lanes.
class CornerSearch {
 public:
  CornerSearch(const Program& program, const Index& coordinate, const Index& extent, const Surroundings& surroundings)
      : program_(program),
        ends_(surroundings.ends),
        coordinate_(coordinate),
        extent_(extent),
        values_(program.symbols.size()) {
    find_order(surroundings);
  }

  // "row_block = 15, row = 15", or nullopt.
  std::optional<std::string> find() {
    try {
      return choose(0) ? std::optional(text()) : std::nullopt;
    } catch (const Error& error) {  // of `evaluate`: a size that may be 0 divides
      return error.text().message;
    }
  }

 private:
  struct Choice {
    Symbol symbol;
    const Instruction* loop;  // of a loop variable
  };

  // What the coordinate and the extent depend on, also through counts of blocks and bounds of loops.
  void find_order(const Surroundings& surroundings) {
    std::vector<bool> used(program_.symbols.size());
    collect_symbols(coordinate_, used);
    collect_symbols(extent_, used);
    for (const Instruction* loop : surroundings.loops) variables_.push_back(loop->symbol);
    for (size_t symbol = 0; symbol < program_.symbols.size(); ++symbol)
      if (const Index* end = used[symbol] ? end_of_lane(static_cast<Symbol>(symbol)) : nullptr)
        collect_symbols(*end, used);
    std::vector<Choice> loops;
    for (auto loop = surroundings.loops.rbegin(); loop != surroundings.loops.rend(); ++loop) {
      if (!used[(*loop)->symbol]) continue;
      collect_symbols((*loop)->begin, used);
      collect_symbols((*loop)->end, used);
      loops.insert(loops.begin(), {(*loop)->symbol, *loop});
    }
    for (const Symbol symbol : program_.grid)
      if (used[symbol]) collect_symbols(program_.symbols[symbol].count, used);
    const auto add = [&](SymbolKind kind) {
      for (size_t symbol = 0; symbol < used.size(); ++symbol)
        if (used[symbol] && program_.symbols[symbol].kind == kind)
          order_.push_back({static_cast<Symbol>(symbol), nullptr});
    };
    add(SymbolKind::kSize);
    add(SymbolKind::kGrid);
    order_.insert(order_.end(), loops.begin(), loops.end());
    add(SymbolKind::kLane);
  }

  struct Ends {
    int64_t low, high;
  };

  // Masks leave out the points behind the last whole vector's own end.
  const Index* end_of_lane(Symbol symbol) const {
    if (program_.symbols[symbol].kind != SymbolKind::kLane) return nullptr;
    const LaneEnd* found = end_of(ends_, symbol, variables_);
    return found && !found->whole_vectors ? &found->end : nullptr;
  }

  // What the symbol can be where those before it have their values; nothing where low > high.
  Ends ends_of(const Choice& choice) const {
    const SymbolInfo& info = program_.symbols[choice.symbol];
    const kernel::SymbolRange& range = info.range;
    if (info.kind == SymbolKind::kSize)
      return {(range.low + range.divisor - 1) / range.divisor * range.divisor,
              range.high / range.divisor * range.divisor};
    if (info.kind == SymbolKind::kGrid) return {0, evaluate(info.count, values_) - 1};
    if (!choice.loop) {
      const Index* end = end_of_lane(choice.symbol);
      return {range.low, end ? std::min(range.high, evaluate(*end, values_) - 1) : range.high};
    }
    const int64_t begin = evaluate(choice.loop->begin, values_), end = evaluate(choice.loop->end, values_);
    if (begin >= end) return {0, -1};
    return {begin, begin + (end - 1 - begin) / choice.loop->step * choice.loop->step};
  }

  bool choose(size_t place) {
    constexpr int kMostTries = 1 << 16;
    if (place == order_.size()) {
      if (++tries_ > kMostTries) return false;
      const int64_t at = evaluate(coordinate_, values_);
      return at < 0 || at >= evaluate(extent_, values_);
    }
    const Ends ends = ends_of(order_[place]);
    if (ends.low > ends.high || tries_ > kMostTries) return false;
    int64_t& value = values_[order_[place].symbol];
    value = ends.low;
    if (choose(place + 1)) return true;
    value = ends.high;
    return ends.high != ends.low && choose(place + 1);
  }

  std::string text() const {
    std::string out;
    for (const Choice& choice : order_)
      out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", program_.symbols[choice.symbol].name,
                         values_[choice.symbol]);
    return fmt::format("{} outside {}{}{}", evaluate(coordinate_, values_), evaluate(extent_, values_),
                       out.empty() ? "" : " where ", out);
  }

  const Program& program_;
  const LaneEnds& ends_;
  std::vector<Symbol> variables_;  // of the loops around
  const Index &coordinate_, &extent_;
  std::vector<Choice> order_;
  std::vector<int64_t> values_;  // [symbol]
  int tries_ = 0;
};

}  // namespace

void check_bounds(const Program& program, const Access& access, const Surroundings& surroundings,
                  kernel::SymbolRanges ranges) {
  const Buffer& buffer = program.buffers[access.buffer];
  if (program.narrow && !access.wide && is_far(program, access))
    throw BrokenRule{fmt::format("the place in buffer '{}' may leave 32 bits", buffer.name)};
  if (access.mask != kNoValue || surroundings.conditional) return;
  for (size_t i = 0; i < access.coordinates.size(); ++i) {
    const Coordinate& coordinate = access.coordinates[i];
    if (coordinate.value != kNoValue) continue;
    if (range_of(coordinate.index, ranges).low >= 0 && range_of(buffer.shape[i] - coordinate.index, ranges).low >= 1)
      continue;
    if (const auto corner = CornerSearch(program, coordinate.index, buffer.shape[i], surroundings).find())
      throw BrokenRule{fmt::format("dimension {} of buffer '{}' is left: {}", i, buffer.name, *corner)};
  }
}

}  // namespace kw::tile
