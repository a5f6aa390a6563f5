#include <fmt/format.h>

#include <bit>

#include "tile/rules.hpp"

namespace kw::tile {
namespace {

// On which dimensions of the grid something depends: a bit for each.
using Dimensions = uint64_t;

// What each value, and what each block's own memory holds, depends on. Global memory is the same for all blocks.
class Dependences {
 public:
  explicit Dependences(const Program& program)
      : program_(program),
        symbols_(program.symbols.size()),
        values_(program.values.size()),
        buffers_(program.buffers.size()) {
    const std::vector<kernel::SymbolRange> ranges = ranges_of(program);
    for (size_t place = 0; place < program.grid.size(); ++place)
      if (ranges[program.grid[place]].high > 0) symbols_[program.grid[place]] = bit(place);
    // Loops and a block's memory carry what comes behind a use back to it.
    do {
      changed_ = false;
      walk(program.body, 0);
    } while (changed_);
  }

  static Dimensions bit(size_t place) { return Dimensions{1} << place; }

  Dimensions of(Value value) const { return value == kNoValue ? 0 : values_[value]; }

  Dimensions of(const Index& index) const {
    std::vector<bool> used;
    collect_symbols(index, used);
    Dimensions result = 0;
    for (size_t symbol = 0; symbol < used.size(); ++symbol)
      if (used[symbol]) result |= symbols_[symbol];
    return result;
  }

  Dimensions of(const Access& access) const {
    Dimensions result = of(access.mask);
    for (const Coordinate& coordinate : access.coordinates) result |= of(coordinate.index) | of(coordinate.value);
    return result;
  }

 private:
  void spread(Dimensions& to, Dimensions more) {
    changed_ = changed_ || (more & ~to) != 0;
    to |= more;
  }

  void write(int buffer, Dimensions what) {
    if (program_.buffers[buffer].space != Space::kGlobal) spread(buffers_[buffer], what);
  }

  void walk(const std::vector<Instruction>& body, Dimensions condition) {
    for (const Instruction& one : body) {
      if (one.kind == Kind::kFor) walk_loop(one, condition);
      else if (one.kind == Kind::kIf) walk_branch(one, condition);
      else walk_plain(one, condition);
    }
  }

  void walk_plain(const Instruction& one, Dimensions condition) {
    Dimensions made = of(one.index);
    for (const Value operand : one.operands) made |= of(operand);
    if (one.access.buffer >= 0) made |= of(one.access);
    if (one.kind == Kind::kLoad || one.kind == Kind::kCopy) made |= buffers_[one.access.buffer];
    if (one.kind == Kind::kStore) write(one.access.buffer, made | condition);
    if (one.kind == Kind::kCopy) write(one.destination.buffer, made | of(one.destination) | condition);
    for (const Value result : one.results) spread(values_[result], made);
  }

  // How often it goes round tells what it leaves, not what an iteration sees.
  void walk_loop(const Instruction& loop, Dimensions condition) {
    const Dimensions begin = of(loop.begin), ends = begin | of(loop.end) | of(loop.until);
    spread(symbols_[loop.symbol], begin);
    for (size_t i = 0; i < loop.arguments.size(); ++i) spread(values_[loop.arguments[i]], of(loop.operands[i]));
    walk(loop.body, condition | ends);
    for (size_t i = 0; i < loop.yields.size(); ++i) {
      spread(values_[loop.arguments[i]], of(loop.yields[i]));
      spread(values_[loop.results[i]], of(loop.operands[i]) | of(loop.yields[i]) | ends);
    }
  }

  void walk_branch(const Instruction& branch, Dimensions condition) {
    const Dimensions own = of(branch.operands[0]);
    walk(branch.body, condition | own);
    walk(branch.otherwise_body, condition | own);
    for (size_t i = 0; i < branch.results.size(); ++i) {
      spread(values_[branch.results[i]], own);
      for (const std::vector<Value>* yields : {&branch.yields, &branch.otherwise_yields})
        if (i < yields->size()) spread(values_[branch.results[i]], of((*yields)[i]));
    }
  }

  const Program& program_;
  std::vector<Dimensions> symbols_, values_, buffers_;
  bool changed_ = false;
};

class Writers {
 public:
  explicit Writers(const Program& program) : program_(program), dependences_(program) {}

  std::optional<WriteFault> find(const std::vector<Instruction>& body, Dimensions condition) const {
    for (const Instruction& one : body) {
      if (one.kind == Kind::kStore)
        if (auto found = fault_of(one, condition)) return found;
      const Dimensions own = one.kind == Kind::kIf ? dependences_.of(one.operands[0]) : 0;
      for (const std::vector<Instruction>* inner : {&one.body, &one.otherwise_body})
        if (auto found = find(*inner, condition | own)) return found;
    }
    return std::nullopt;
  }

 private:
  // Blocks whose values differ write different elements, or only one of them writes.
  std::optional<WriteFault> fault_of(const Instruction& store, Dimensions condition) const {
    const Buffer& buffer = program_.buffers[store.access.buffer];
    if (store.combines || is_decided_by_data(store.access) || buffer.space != Space::kGlobal) return std::nullopt;
    const Dimensions meeting = dependences_.of(store.operands[0]) & ~dependences_.of(store.access) & ~condition;
    if (meeting == 0) return std::nullopt;
    const std::string& along = program_.symbols[program_.grid[std::countr_zero(meeting)]].name;
    return WriteFault{&store, fmt::format("blocks along '{0}' store values of their own in one element of buffer "
                                          "'{1}': neither its index nor its mask depends on '{0}'",
                                          along, buffer.name)};
  }

  const Program& program_;
  const Dependences dependences_;
};

}  // namespace

std::optional<WriteFault> find_write_fault(const Program& program) {
  if (program.grid.empty()) return std::nullopt;
  return Writers(program).find(program.body, 0);
}

}  // namespace kw::tile
