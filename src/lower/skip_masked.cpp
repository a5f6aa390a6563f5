#include "lower/skip_masked.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "support/error.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Value;

class MaskedBlocks {
 public:
  explicit MaskedBlocks(tile::Program& program) : program_(program), needed_(program.values.size()) {}

  void run(int64_t walkers) {
    collect_masks();
    std::vector<Instruction> first, rest;
    std::vector<bool> is_first(program_.body.size());
    for (size_t place = program_.body.size(); place-- > 0;) is_first[place] = is_needed(program_.body[place]);
    for (size_t place = 0; place < program_.body.size(); ++place)
      (is_first[place] ? first : rest).push_back(std::move(program_.body[place]));
    program_.body = std::move(first);
    Instruction branch;
    branch.kind = Kind::kIf;
    branch.operands = {anywhere()};
    branch.body = std::move(rest);
    const Value holds = branch.operands[0];
    program_.body.push_back(std::move(branch));
    if (walkers > 0) walk(holds, walkers);
  }

 private:
  // --- Blocks that walk ---
  void walk(Value holds, int64_t walkers) {
    const std::vector<bool> loaded = hanging_on(std::nullopt);
    tile::Symbol best = -1;
    int64_t blocks = 1, most = 0;
    for (const tile::Symbol symbol : program_.grid) {
      const auto count = kernel::as_constant(program_.symbols[symbol].count);
      if (!count) return;
      blocks *= *count;
      if (*count > most && asks_first(holds, hanging_on(symbol), loaded)) {
        best = symbol;
        most = *count;
      }
    }
    if (best < 0) return;
    const int64_t others = blocks / most, started = std::max<int64_t>(1, (walkers + others - 1) / others);
    if (started < most) walk_along(best, most, started, holds);
  }

  // Values that hang on the symbol, or, without one, on what is loaded.
  std::vector<bool> hanging_on(std::optional<tile::Symbol> symbol) const {
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

  // Does what data say, and does not hang on the symbol, have to hold in any case where the condition does?
  bool asks_first(Value condition, const std::vector<bool>& hangs, const std::vector<bool>& loaded) const {
    if (!loaded[condition]) return false;
    if (!hangs[condition]) return true;
    const Instruction* maker = maker_of(condition);
    if (maker == nullptr || maker->kind != Kind::kOp) return false;
    const auto of_operand = [&](Value operand) { return asks_first(operand, hangs, loaded); };
    if (maker->op == tile::ScalarOp::kLogicalAnd)
      return std::any_of(maker->operands.begin(), maker->operands.end(), of_operand);
    return maker->op == tile::ScalarOp::kLogicalOr &&
           std::all_of(maker->operands.begin(), maker->operands.end(), of_operand);
  }

  // That, as a value.
  Value asked_first(Value condition, const std::vector<bool>& hangs, const std::vector<bool>& loaded) {
    if (!hangs[condition]) return condition;
    const Instruction made = *maker_of(condition);
    Value all = tile::kNoValue;
    for (const Value operand : made.operands) {
      if (!asks_first(operand, hangs, loaded)) continue;
      const Value one = asked_first(operand, hangs, loaded);
      all = all == tile::kNoValue || all == one ? one : op(made.op, {all, one});
    }
    return all;
  }

  // Every `started`th block along the axis is one walker's.
  void walk_along(tile::Symbol symbol, int64_t count, int64_t started, Value holds) {
    Instruction branch = std::move(program_.body.back());
    program_.body.pop_back();
    const Value asked = asked_first(holds, hanging_on(symbol), hanging_on(std::nullopt));
    const std::vector<bool> hangs = hanging_on(symbol);
    std::vector<Instruction> before, within;
    for (Instruction& one : program_.body) {
      const bool moves = std::any_of(one.results.begin(), one.results.end(), [&](Value value) { return hangs[value]; });
      (moves ? within : before).push_back(std::move(one));
    }
    within.push_back(std::move(branch));
    const auto first = static_cast<tile::Symbol>(program_.symbols.size());
    program_.symbols.push_back({unique_symbol("first_" + program_.symbols[symbol].name),
                                tile::SymbolKind::kGrid,
                                {0, started - 1},
                                tile::Index(started)});
    std::replace(program_.grid.begin(), program_.grid.end(), symbol, first);
    if (program_.order.grouped == symbol || program_.order.along == symbol) program_.order = {};
    Instruction loop;
    loop.kind = Kind::kFor;
    loop.symbol = symbol;
    loop.begin = kernel::symbol_index(first);
    loop.end = tile::Index(count);
    loop.step = started;
    program_.symbols[symbol].kind = tile::SymbolKind::kLoop;
    program_.symbols[symbol].count = {};
    program_.symbols[symbol].range = tile::loop_range(loop.begin, loop.end, loop.step, tile::ranges_of(program_));
    loop.body = std::move(within);
    program_.body = std::move(before);
    Instruction once;
    once.kind = Kind::kIf;
    once.operands = {asked};
    once.body.push_back(std::move(loop));
    program_.body.push_back(std::move(once));
  }

  std::string unique_symbol(std::string name) const {
    const auto taken = [&] {
      return std::any_of(program_.symbols.begin(), program_.symbols.end(),
                         [&](const tile::SymbolInfo& symbol) { return symbol.name == name; });
    };
    while (taken()) name += "_";
    return name;
  }

  // --- Masks ---
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorKind::kUser, fmt::format("kernel schedule: '{}' cannot skip blocks: {}", program_.name, why));
  }

  void collect_masks() {
    size_t stores = 0, outside = 0;
    tile::for_each(program_.body, [&](const Instruction& one) { stores += one.kind == Kind::kStore ? 1 : 0; });
    for (const Instruction& one : program_.body) {
      if (one.kind != Kind::kStore) continue;
      ++outside;
      if (one.access.mask == tile::kNoValue) refuse("a store is not masked");
      masks_.insert(one.access.mask);
      needed_[one.access.mask] = true;
    }
    if (stores == 0 || stores != outside) refuse("it stores within a loop");
  }

  void need(Value value) {
    if (value != tile::kNoValue) needed_[value] = true;
  }

  void need(const tile::Access& access) {
    need(access.mask);
    for (const tile::Coordinate& coordinate : access.coordinates) need(coordinate.value);
  }

  bool is_needed(const Instruction& one) {
    if (std::none_of(one.results.begin(), one.results.end(), [&](Value value) { return needed_[value]; })) return false;
    if (one.kind == Kind::kFor || one.kind == Kind::kIf) refuse("a mask is known only after a loop");
    for (Value value : one.operands) need(value);
    need(one.access);
    return true;
  }

  Value define(const std::string& name, tile::TileType type) {
    const auto taken = [&](const std::string& wanted) {
      return std::any_of(program_.values.begin(), program_.values.end(),
                         [&](const tile::ValueInfo& value) { return value.name == wanted; });
    };
    std::string unique = name;
    for (int count = 2; taken(unique); ++count) unique = fmt::format("{}_{}", name, count);
    program_.values.push_back({unique, std::move(type)});
    return static_cast<Value>(program_.values.size()) - 1;
  }

  Value emit(Instruction instruction, const std::string& name, tile::TileType type) {
    const Value value = define(name, std::move(type));
    instruction.results = {value};
    program_.body.push_back(std::move(instruction));
    return value;
  }

  Value op(tile::ScalarOp op, std::vector<Value> operands) {
    Instruction one;
    one.kind = Kind::kOp;
    one.op = op;
    one.operands = std::move(operands);
    return emit(std::move(one), "anywhere", {DType::b1, {}});
  }

  Value fold(tile::ReduceOp reduce, Value value) {
    const tile::TileType type = program_.values[value].type;
    if (type.lanes.empty()) return value;
    Instruction one;
    one.kind = Kind::kFold;
    one.reduce = reduce;
    one.operands = {value};
    one.lanes = type.lanes;
    const char* name = reduce == tile::ReduceOp::kAny ? "anywhere" : reduce == tile::ReduceOp::kMax ? "most" : "least";
    return emit(std::move(one), name, {type.dtype, {}});
  }

  const Instruction* maker_of(Value value) const {
    for (const Instruction& one : program_.body)
      if (one.results.size() == 1 && one.results[0] == value) return &one;
    return nullptr;
  }

  bool share_no_lane(Value left, Value right) const {
    const auto &a = program_.values[left].type.lanes, &b = program_.values[right].type.lanes;
    return std::none_of(a.begin(), a.end(),
                        [&](tile::Symbol lane) { return std::count(b.begin(), b.end(), lane) > 0; });
  }

  // Does it hold only where some scalar does?
  bool asks_scalar(Value mask) const {
    if (program_.values[mask].type.lanes.empty()) return true;
    const Instruction* maker = maker_of(mask);
    return maker != nullptr && maker->kind == Kind::kOp && maker->op == tile::ScalarOp::kLogicalAnd &&
           std::any_of(maker->operands.begin(), maker->operands.end(), [&](Value one) { return asks_scalar(one); });
  }

  // Does the mask hold at any point? A scalar, from tiles of as few dimensions as possible: it may hold where the mask
  // nowhere does, never the other way round.
  Value anywhere(Value mask) {
    const Instruction* maker = maker_of(mask);
    const size_t lanes = program_.values[mask].type.lanes.size();
    if (maker == nullptr || maker->kind != Kind::kOp || (lanes < 2 && !asks_scalar(mask)))
      return fold(tile::ReduceOp::kAny, mask);
    const Instruction made = *maker;
    switch (made.op) {
      case tile::ScalarOp::kLogicalOr:
      case tile::ScalarOp::kLogicalAnd: return op(made.op, {anywhere(made.operands[0]), anywhere(made.operands[1])});
      case tile::ScalarOp::kGreater:
      case tile::ScalarOp::kGreaterEqual: {
        const DType dtype = program_.values[made.operands[0]].type.dtype;
        // Where one of them is NaN its extreme is, and nothing is greater.
        if (!is_integral(dtype) || !share_no_lane(made.operands[0], made.operands[1])) break;
        return op(made.op,
                  {fold(tile::ReduceOp::kMax, made.operands[0]), fold(tile::ReduceOp::kMin, made.operands[1])});
      }
      default: break;
    }
    return fold(tile::ReduceOp::kAny, mask);
  }

  // Does any of the masks hold at any point?
  Value anywhere() {
    Value all = tile::kNoValue;
    for (Value mask : masks_) {
      const Value one = anywhere(mask);
      all = all == tile::kNoValue ? one : op(tile::ScalarOp::kLogicalOr, {all, one});
    }
    return all;
  }

  tile::Program& program_;
  std::vector<bool> needed_;  // [value] by a mask
  std::set<Value> masks_;
};

}  // namespace

void skip_masked_blocks(tile::Program& program, int64_t walkers) { MaskedBlocks(program).run(walkers); }

}  // namespace kw::lower
