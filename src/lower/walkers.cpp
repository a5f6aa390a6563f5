#include "lower/walkers.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "lower/appender.hpp"
#include "support/error.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::ScalarOp;
using tile::Symbol;
using tile::Value;

constexpr int64_t kMostOfRun = 4096;  // points of a run's tiles, which a block holds in registers

class Walkers {
 public:
  Walkers(tile::Program& program, std::span<const MappedAxis> axes)
      : program_(program), axes_(axes), appender_(program), branch_(std::move(program.body.back())) {
    KW_ASSERT(branch_.kind == Kind::kIf, "blocks that walk ask before each block");
    program_.body.pop_back();
  }

  void run(int64_t walkers) {
    if (const auto blocks = blocks_of_grid())
      if (!walk_where_others_hold(*blocks, walkers)) walk_runs(*blocks, walkers);
    program_.body.push_back(std::move(branch_));
  }

 private:
  std::optional<int64_t> blocks_of_grid() const {
    int64_t blocks = 1;
    for (const Symbol symbol : program_.grid) {
      const auto count = kernel::as_constant(program_.symbols[symbol].count);
      if (!count) return std::nullopt;
      blocks *= *count;
    }
    return blocks;
  }

  int64_t count_of(Symbol symbol) const { return *kernel::as_constant(program_.symbols[symbol].count); }

  Value condition() const { return branch_.operands[0]; }

  // Values that depend on the symbol, or, without one, on what is loaded.
  std::vector<bool> hanging_on(std::optional<Symbol> symbol) const {
    std::vector<bool> hangs(program_.values.size());
    const auto index_hangs = [&](const tile::Index& index) { return symbol && kernel::uses(index, *symbol); };
    const auto value_hangs = [&](Value value) { return value != tile::kNoValue && hangs[value]; };
    for (const Instruction& one : program_.body) {
      bool found = one.kind == Kind::kLoad && !symbol;
      found = found || (one.kind == Kind::kIndex && index_hangs(one.index));
      found = found || std::any_of(one.operands.begin(), one.operands.end(), value_hangs) ||
              value_hangs(one.access.mask);
      for (const tile::Coordinate& coordinate : one.access.coordinates)
        found = found || index_hangs(coordinate.index) || value_hangs(coordinate.value);
      for (const Value result : one.results) hangs[result] = found;
    }
    return hangs;
  }

  // --- What data say of other axes ---

  bool walk_where_others_hold(int64_t blocks, int64_t walkers) {
    const std::vector<bool> loaded = hanging_on(std::nullopt);
    Symbol best = -1;
    int64_t most = 0;
    for (const Symbol symbol : program_.grid) {
      if (count_of(symbol) <= most || !asks_first(condition(), hanging_on(symbol), loaded)) continue;
      best = symbol;
      most = count_of(symbol);
    }
    if (best < 0) return false;
    const int64_t others = blocks / most, started = std::max<int64_t>(1, (walkers + others - 1) / others);
    if (started >= most) return true;
    const Value asked = asked_first(condition(), hanging_on(best), loaded);
    const Symbol first = first_block(best, started);
    // Every `started`th block along the axis is one walker's.
    walk(best, first, asked, kernel::symbol_index(first), tile::Index(most), started);
    return true;
  }

  // Does what data say, and does not depend on the symbol, have to hold in any case where the condition does?
  bool asks_first(Value condition, const std::vector<bool>& hangs, const std::vector<bool>& loaded) const {
    if (!loaded[condition]) return false;
    if (!hangs[condition]) return true;
    const Instruction* maker = appender_.maker_of(condition);
    if (maker == nullptr || maker->kind != Kind::kOp) return false;
    const auto of_operand = [&](Value operand) { return asks_first(operand, hangs, loaded); };
    if (maker->op == ScalarOp::kLogicalAnd)
      return std::any_of(maker->operands.begin(), maker->operands.end(), of_operand);
    return maker->op == ScalarOp::kLogicalOr && std::all_of(maker->operands.begin(), maker->operands.end(), of_operand);
  }

  // That, as a value.
  Value asked_first(Value condition, const std::vector<bool>& hangs, const std::vector<bool>& loaded) {
    if (!hangs[condition]) return condition;
    const Instruction made = *appender_.maker_of(condition);
    Value all = tile::kNoValue;
    for (const Value operand : made.operands) {
      if (!asks_first(operand, hangs, loaded)) continue;
      const Value one = asked_first(operand, hangs, loaded);
      all = all == tile::kNoValue || all == one ? one : appender_.op(made.op, {all, one}, "anywhere", {DType::b1, {}});
    }
    return all;
  }

  // --- Runs of neighbours ---

  struct Run {
    Symbol symbol = -1, lane = -1;
    int64_t width = 1, blocks = 1;          // of the lane; of the run
    Symbol first = -1, whole = -1;          // number of the run; the lane that is as wide as all of it
    std::vector<bool> moves = {};           // [value] depends on the symbol, or lies along the lane
    std::map<Value, Value> for_whole = {};  // by the value for one block
  };

  void walk_runs(int64_t blocks, int64_t walkers) {
    Run best;
    int64_t fewest = blocks;
    for (const MappedAxis& axis : axes_) {
      if (std::find(program_.grid.begin(), program_.grid.end(), axis.outer) == program_.grid.end() || axis.lane < 0)
        continue;
      const int64_t others = blocks / count_of(axis.outer);
      Run run{.symbol = axis.outer, .lane = axis.lane, .width = axis.width};
      run.blocks = length_of_run(axis, others, walkers);
      if (runs_of(axis.outer, run.blocks) * others >= fewest) continue;
      run.moves = hanging_on(run.symbol);
      for (size_t value = 0; value < run.moves.size(); ++value)
        if (tile::has_lane(program_.values[value].type.lanes, run.lane)) run.moves[value] = true;
      if (!holds_for_runs(run, condition())) continue;
      fewest = runs_of(axis.outer, run.blocks) * others;
      best = std::move(run);
    }
    if (fewest == blocks) return;
    best.first = first_block(best.symbol, runs_of(best.symbol, best.blocks));
    best.whole = appender_.symbol(
        {program_.symbols[best.lane].name + "_of_run", tile::SymbolKind::kLane, {0, best.blocks * best.width - 1}, {}});
    const Value asked = for_whole_run(best, condition());
    const tile::Index begin = kernel::symbol_index(best.first) * tile::Index(best.blocks);
    walk(best.symbol, best.first, asked, begin, begin + tile::Index(best.blocks), 1);
  }

  int64_t runs_of(Symbol symbol, int64_t blocks) const { return (count_of(symbol) + blocks - 1) / blocks; }

  // The most blocks, a power of two, of which enough runs are left. Blocks beyond the last one do nothing where every
  // access asks whether the axis has ended.
  int64_t length_of_run(const MappedAxis& axis, int64_t others, int64_t walkers) const {
    const bool may_leave = axis.padded && are_masked(axis.outer);
    int64_t run = 1;
    while (2 * run * axis.width <= kMostOfRun && run < count_of(axis.outer) &&
           (may_leave || count_of(axis.outer) % (2 * run) == 0) && runs_of(axis.outer, 2 * run) * others >= walkers)
      run *= 2;
    return run;
  }

  bool are_masked(Symbol symbol) const {
    bool all = true;
    const auto see = [&](const tile::Access& access) {
      if (access.buffer < 0 || access.mask != tile::kNoValue) return;
      for (const tile::Coordinate& at : access.coordinates)
        all = all && at.value == tile::kNoValue && !kernel::uses(at.index, symbol);
    };
    const auto see_both = [&](const Instruction& one) {
      see(one.access);
      see(one.destination);
    };
    tile::for_each(program_.body, see_both);
    tile::for_each(branch_.body, see_both);
    return all;
  }

  // Does the scalar, made of wider tiles, hold wherever it does for one of the blocks?
  bool holds_for_runs(const Run& run, Value scalar) const {
    if (!run.moves[scalar]) return true;
    const Instruction* maker = appender_.maker_of(scalar);
    if (maker == nullptr) return false;
    const auto folds = [&](Value value, tile::ReduceOp reduce) {
      if (!run.moves[value]) return true;
      const Instruction* fold = appender_.maker_of(value);
      return fold != nullptr && fold->kind == Kind::kFold && fold->reduce == reduce && fold->operands.size() == 1 &&
             fold->lanes == std::vector{run.lane} && is_by_point(run, fold->operands[0]);
    };
    if (maker->kind == Kind::kFold) return folds(scalar, tile::ReduceOp::kAny);
    if (maker->kind != Kind::kOp) return false;
    switch (maker->op) {
      case ScalarOp::kLogicalAnd:
      case ScalarOp::kLogicalOr:
        return holds_for_runs(run, maker->operands[0]) && holds_for_runs(run, maker->operands[1]);
      case ScalarOp::kGreater:
      case ScalarOp::kGreaterEqual:  // of whole numbers: an extreme may be NaN for another block's sake
        return is_integral(program_.values[maker->operands[0]].type.dtype) &&
               folds(maker->operands[0], tile::ReduceOp::kMax) && folds(maker->operands[1], tile::ReduceOp::kMin);
      default: return false;
    }
  }

  // Has the tile one dimension, the lane, and does each of its points depend on its own place along the axis alone?
  bool is_by_point(const Run& run, Value value) const {
    if (value == tile::kNoValue || !run.moves[value]) return true;
    const Instruction* maker = appender_.maker_of(value);
    if (maker == nullptr || program_.values[value].type.lanes != std::vector{run.lane}) return false;
    const auto by_point = [&](Value operand) { return is_by_point(run, operand); };
    switch (maker->kind) {
      case Kind::kConstant: return true;
      case Kind::kIndex: return is_by_point(run, maker->index);
      case Kind::kOp: return std::all_of(maker->operands.begin(), maker->operands.end(), by_point);
      case Kind::kLoad:
        return maker->mode == tile::CopyMode::kPlain && by_point(maker->access.mask) &&
               std::all_of(
                   maker->access.coordinates.begin(), maker->access.coordinates.end(),
                   [&](const tile::Coordinate& at) { return is_by_point(run, at.index) && by_point(at.value); });
      default: return false;
    }
  }

  bool is_by_point(const Run& run, const tile::Index& index) const {
    if (!kernel::uses(index, run.symbol) && !kernel::uses(index, run.lane)) return true;
    const auto by_block = kernel::linear_in(index, run.symbol), by_lane = kernel::linear_in(index, run.lane);
    return by_block && by_lane && by_block->coefficient == by_lane->coefficient * tile::Index(run.width);
  }

  Value for_whole_run(Run& run, Value value) {
    if (value == tile::kNoValue || !run.moves[value]) return value;
    if (const auto known = run.for_whole.find(value); known != run.for_whole.end()) return known->second;
    Instruction one = *appender_.maker_of(value);
    tile::ValueInfo info = program_.values[value];
    for (auto* lanes : {&one.lanes, &info.type.lanes}) std::replace(lanes->begin(), lanes->end(), run.lane, run.whole);
    for (Value& operand : one.operands) operand = for_whole_run(run, operand);
    one.index = for_whole_run(run, one.index);
    one.access.mask = for_whole_run(run, one.access.mask);
    for (tile::Coordinate& at : one.access.coordinates)
      at = {for_whole_run(run, at.index), for_whole_run(run, at.value)};
    return run.for_whole[value] = appender_.emit(std::move(one), info.name + "_of_run", std::move(info.type));
  }

  tile::Index for_whole_run(const Run& run, const tile::Index& index) const {
    const tile::Index place = kernel::symbol_index(run.first) * tile::Index(run.blocks * run.width) +
                              kernel::symbol_index(run.whole);
    return kernel::substitute(
        index,
        [&](Symbol symbol) {
          return symbol == run.symbol ? tile::Index(0) : symbol == run.lane ? place : kernel::symbol_index(symbol);
        },
        tile::ranges_of(program_));
  }

  // --- The loop ---

  // What a walker along the axis has for its own place in the grid.
  Symbol first_block(Symbol symbol, int64_t started) {
    return appender_.symbol(
        {"first_" + program_.symbols[symbol].name, tile::SymbolKind::kGrid, {0, started - 1}, tile::Index(started)});
  }

  // Where `asked` holds, what depends on the symbol is done for each of the blocks.
  void walk(Symbol symbol, Symbol first, Value asked, const tile::Index& begin, const tile::Index& end, int64_t step) {
    const std::vector<bool> hangs = hanging_on(symbol);
    std::vector<Instruction> before, within;
    for (Instruction& one : program_.body) {
      const bool moves = std::any_of(one.results.begin(), one.results.end(), [&](Value value) { return hangs[value]; });
      (moves ? within : before).push_back(std::move(one));
    }
    within.push_back(std::move(branch_));
    std::replace(program_.grid.begin(), program_.grid.end(), symbol, first);
    if (program_.order.grouped == symbol || program_.order.along == symbol) program_.order = {};
    program_.symbols[symbol].kind = tile::SymbolKind::kLoop;
    program_.symbols[symbol].count = {};
    program_.symbols[symbol].range = tile::loop_range(begin, end, step, tile::ranges_of(program_));
    Instruction loop;
    loop.kind = Kind::kFor;
    loop.symbol = symbol;
    loop.begin = begin;
    loop.end = end;
    loop.step = step;
    loop.body = std::move(within);
    program_.body = std::move(before);
    branch_ = {};
    branch_.kind = Kind::kIf;
    branch_.operands = {asked};
    branch_.body.push_back(std::move(loop));
  }

  tile::Program& program_;
  std::span<const MappedAxis> axes_;
  Appender appender_;
  Instruction branch_;  // the body's last
};

}  // namespace

void walk_blocks(tile::Program& program, std::span<const MappedAxis> axes, int64_t walkers) {
  Walkers(program, axes).run(walkers);
}

}  // namespace kw::lower
