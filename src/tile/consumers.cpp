#include "tile/consumers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.hpp"
#include "tile/block_places.hpp"
#include "tile/rules.hpp"

namespace kw::tile {
namespace {

// Of the products of four warps on Hopper (wgmma): multiples of these, of operands of 16 bits.
constexpr int64_t kRows = 64, kColumns = 8, kDepth = 16, kMostColumns = 256;
constexpr int kWarps = 4, kConsumers = 2;
// A thread's, which warps hand on by eights. A thread of each warp of a group of four has so many among them; the
// producer's group has one warp.
constexpr int kRegistersTogether = 8, kLeastRegisters = 24, kMostRegisters = 240, kRegistersInAll = 512;

bool is_bulk_load(const Instruction& one) { return one.kind == Kind::kLoad && one.mode == CopyMode::kBulk; }

// The operands as left and right matrix: the rows of the left one are the result's.
struct Factors {
  Value left = kNoValue, right = kNoValue;
};
Factors factors_of(const Program& program, const Instruction& dot) {
  const Symbol row = program.values[dot.operands[0]].type.lanes[0];
  const bool is_left = has_lane(program.values[dot.operands[1]].type.lanes, row);
  return is_left ? Factors{dot.operands[1], dot.operands[2]} : Factors{dot.operands[2], dot.operands[1]};
}

void check_product(const Program& program, const Instruction& dot) {
  const TileType &sum = program.values[dot.results[0]].type, &one = program.values[dot.operands[1]].type,
                 &other = program.values[dot.operands[2]].type;
  if (sum.dtype != DType::f32 || size_of(one.dtype) != 2 || size_of(other.dtype) != 2 || sum.lanes.size() != 2)
    throw BrokenRule{"consumers multiply matrices of 16-bit numbers and sum in f32"};
  for (const TileType* operand : {&one, &other})
    for (const Symbol lane : operand->lanes)
      if (!has_lane(sum.lanes, lane) && width_of(program, lane) % kDepth != 0)
        throw BrokenRule{fmt::format("consumers sum {} products at a time", kDepth)};
  const int64_t rows = width_of(program, sum.lanes[0]), columns = width_of(program, sum.lanes[1]);
  if (rows % kRows != 0 || columns % kColumns != 0 || columns > kMostColumns)
    throw BrokenRule{fmt::format("consumers multiply multiples of {} rows by multiples of {} columns, at most {}",
                                 kRows, kColumns, kMostColumns)};
}

bool any_of(const std::vector<Value>& values, const std::vector<bool>& marked) {
  return std::any_of(values.begin(), values.end(), [&](Value value) { return marked[value]; });
}

// What the loop's values are made of.
struct LoopValues {
  std::vector<bool> boxes, sums;  // [value] loaded; of products
  std::vector<bool> left;         // [value] in registers for a left operand: boxes that are computed with, and what is
                                  // computed of them
};

LoopValues values_of(const Program& program, const Instruction& loop) {
  const size_t count = program.values.size();
  LoopValues made{std::vector<bool>(count), std::vector<bool>(count), std::vector<bool>(count)};
  for (const Instruction& one : loop.body)
    if (one.kind == Kind::kOp || one.kind == Kind::kFold)
      for (const Value operand : one.operands) made.left[operand] = true;  // of these, boxes stay
  for (const Instruction& one : loop.body)
    if (is_bulk_load(one)) made.boxes[one.results[0]] = true;
  for (size_t value = 0; value < count; ++value) made.left[value] = made.left[value] && made.boxes[value];
  // Carried values are what the iteration before made of them.
  for (int pass = 0; pass < 2; ++pass) {
    for (const Instruction& one : loop.body) {
      if (is_bulk_load(one)) continue;
      const bool sums = one.kind == Kind::kDot || one.layout == Layout::kSums || any_of(one.operands, made.sums);
      for (const Value result : one.results) {
        made.sums[result] = sums;
        made.left[result] = !sums && any_of(one.operands, made.left);
      }
    }
    for (size_t place = 0; place < loop.yields.size(); ++place)
      for (std::vector<bool>* marks : {&made.sums, &made.left})
        (*marks)[loop.arguments[place]] = (*marks)[loop.yields[place]];
  }
  return made;
}

void check_loop(const Program& program, const Instruction& loop) {
  if (loop.stages < 1 || loop.reversed || loop.unrolled)
    throw BrokenRule{"the loop of consumers has stages, and is neither reversed nor unrolled"};
  for (const Instruction& one : loop.body) {
    const bool computes = one.kind == Kind::kDot || one.kind == Kind::kOp || one.kind == Kind::kFold;
    const bool waits = one.kind == Kind::kWait || one.kind == Kind::kRelease || one.kind == Kind::kMove;
    if (!is_bulk_load(one) && !computes && !waits && one.kind != Kind::kConstant)
      throw BrokenRule{"the loop of consumers loads boxes and multiplies them, and does nothing else"};
    if (one.kind == Kind::kDot) check_product(program, one);
  }
  const LoopValues values = values_of(program, loop);
  std::vector<Symbol> left_lanes;
  for (const Instruction& one : loop.body) {
    if (one.kind != Kind::kDot) continue;
    const auto [left, right] = factors_of(program, one);
    if (!values.boxes[right] || values.left[right])
      throw BrokenRule{"what consumers multiply by is a box loaded in the same iteration, which nothing else reads"};
    if (!values.boxes[left] && !values.left[left])
      throw BrokenRule{"consumers multiply boxes that are loaded in the same iteration, or what they compute of them"};
    if (!values.left[left]) continue;
    if (values.boxes[left]) throw BrokenRule{"a box that consumers compute with is not multiplied as it is, too"};
    left_lanes = program.values[left].type.lanes;
  }
  const auto is_row = [&](Value value) { return program.values[value].type.lanes == std::vector{left_lanes[0]}; };
  for (const Instruction& one : loop.body) {
    if (one.results.empty()) continue;
    const Value result = one.results[0];
    if (!values.left[result]) {
      for (const Value operand : one.operands)
        if (values.left[operand] && one.kind != Kind::kDot && (left_lanes.empty() || !is_row(operand)))
          throw BrokenRule{"what consumers compute of boxes meets sums of products row by row"};
      continue;
    }
    if (left_lanes.empty()) throw BrokenRule{"what consumers load is multiplied"};
    if (!program.values[result].type.lanes.empty() && program.values[result].type.lanes != left_lanes &&
        !is_row(result))
      throw BrokenRule{"what consumers compute of boxes has the lanes of a product's left operand, or its rows"};
  }
  for (size_t place = 0; place < loop.yields.size(); ++place) {
    const Value value = loop.yields[place];
    if (values.boxes[value] || (values.left[value] && !is_row(value)))
      throw BrokenRule{"consumers keep sums of products and numbers of rows, not what they load"};
  }
}

// What a target has decided.
void check_choices(const Program& program) {
  const Consumers& consumers = program.consumers;
  for (const int registers : {consumers.registers, consumers.producer_registers})
    if (registers != 0 &&
        (registers % kRegistersTogether != 0 || registers < kLeastRegisters || registers > kMostRegisters))
      throw BrokenRule{fmt::format("consumers have multiples of {} registers, {} to {}", kRegistersTogether,
                                   kLeastRegisters, kMostRegisters)};
  if (consumers.count * consumers.registers + consumers.producer_registers > kRegistersInAll)
    throw BrokenRule{fmt::format("consumers and their producer have {} registers together", kRegistersInAll)};
  if (consumers.registers > 0) {
    check_waits(program);
    check_layouts(program);
  }
  if (consumers.stored_along < 0) return;
  if (consumers.along >= 0) throw BrokenRule{"results are moved by consumers that take blocks in turn"};
  const std::vector<Instruction>& body = consuming_loop(program).body;
  const auto sums_along = [&](const Instruction& one) {
    return one.kind == Kind::kDot && has_lane(program.values[one.results[0]].type.lanes, consumers.stored_along);
  };
  if (std::none_of(body.begin(), body.end(), sums_along) ||
      width_of(program, consumers.stored_along) % consumers.stored_together != 0)
    throw BrokenRule{"consumers store along a lane of their sums, which what a thread stores divides"};
}

// Is an index the same for all consumers of a program, whichever block along their dimension each of them has?
bool is_common(const Program& program, const Index& index) {
  const Symbol along = program.consumers.along;
  if (along < 0 || !kernel::uses(index, along)) return true;
  std::vector<kernel::SymbolRange> ranges = ranges_of(program);
  const auto program_symbol = static_cast<Symbol>(ranges.size()), consumer = program_symbol + 1;
  ranges.push_back({0, ranges[along].high / program.consumers.count});
  ranges.push_back({0, program.consumers.count - 1});
  const Index block = kernel::symbol_index(program_symbol) * Index(program.consumers.count) +
                      kernel::symbol_index(consumer);
  const auto placed = [&](Symbol symbol) { return symbol == along ? block : kernel::symbol_index(symbol); };
  return !kernel::uses(kernel::substitute(index, placed, ranges), consumer);
}

void check_consumers(const Program& program) {
  const Consumers& consumers = program.consumers;
  const bool in_turn = consumers.along < 0;
  const auto blocks = in_turn ? std::nullopt : kernel::as_constant(program.symbols[consumers.along].count);
  if (!in_turn && (!blocks || *blocks % consumers.count != 0))
    throw BrokenRule{fmt::format("{} consumers do not divide the blocks along '{}'", consumers.count,
                                 program.symbols[consumers.along].name)};
  if (consumers.count != kConsumers) throw BrokenRule{fmt::format("consumers are {}", kConsumers)};
  if (program.warps != kWarps) throw BrokenRule{fmt::format("a consumer has {} warps", kWarps)};
  const Instruction* loop = nullptr;
  for (const Instruction& one : program.body) {
    if (is_bulk_load(one)) throw BrokenRule{"consumers load boxes in their loop alone"};
    if (one.kind == Kind::kFor && loop) throw BrokenRule{"consumers have one loop"};
    if (one.kind == Kind::kFor) loop = &one;
    if (one.kind == Kind::kStore && one.combines) throw BrokenRule{"consumers do not combine what they store"};
    if (one.kind == Kind::kSplit || one.kind == Kind::kRelabel)
      throw BrokenRule{"consumers keep the lanes of their sums"};
    if (one.kind == Kind::kIf || one.kind == Kind::kDot || one.kind == Kind::kBarrier || one.kind == Kind::kCopy ||
        one.kind == Kind::kScan)
      throw BrokenRule{"outside of their loop consumers compute, load and store"};
  }
  if (!loop) throw BrokenRule{"consumers have one loop"};
  if (in_turn && !kernel::as_constant(loop->end - loop->begin))
    throw BrokenRule{"consumers that take blocks in turn have loops of one length"};
  if (!is_common(program, loop->begin) || !is_common(program, loop->end))
    throw BrokenRule{"consumers that run as one go through their loop alike"};
  check_loop(program, *loop);
  check_choices(program);
}

}  // namespace

std::string why_no_consumers(const Program& program) {
  if (program.consumers.count == 1) return "";
  try {
    check_consumers(program);
  } catch (const BrokenRule& rule) { return rule.message; }
  return "";
}

const Instruction& consuming_loop(const Program& program) {
  const auto loop = std::find_if(program.body.begin(), program.body.end(),
                                 [](const Instruction& one) { return one.kind == Kind::kFor; });
  KW_ASSERT(loop != program.body.end(), "a program with consumers has a loop");
  return *loop;
}

std::vector<bool> left_in_registers(const Program& program) {
  const Instruction& loop = consuming_loop(program);
  std::vector<bool> left = values_of(program, loop).left;
  for (size_t place = 0; place < loop.arguments.size(); ++place)
    if (left[loop.arguments[place]]) left[loop.operands[place]] = true;
  return left;
}

bool is_of_consumer(const Program& program, const Instruction& load) {
  if (program.consumers.along < 0) return false;
  return std::any_of(load.access.coordinates.begin(), load.access.coordinates.end(), [&](const Coordinate& coordinate) {
    return kernel::uses(coordinate.index, program.consumers.along);
  });
}

int64_t boxes_of(const Program& program, const Instruction& load) {
  return is_of_consumer(program, load) ? program.consumers.count : 1;
}

int64_t bytes_of_stage(const Program& program) {
  int64_t bytes = 0;
  for (const Instruction& one : consuming_loop(program).body)
    if (is_bulk_load(one)) bytes += boxes_of(program, one) * bytes_of(program, program.values[one.results[0]].type);
  return bytes;
}

LoopShares loop_shares(const Program& program) {
  Program placed = program;
  if (placed.places.empty()) place_blocks(placed, "program");
  const Instruction& loop = consuming_loop(placed);
  const Symbol number = number_of_block(placed);
  const std::vector<kernel::SymbolRange> ranges = ranges_of(placed);
  std::vector<int64_t> values(placed.symbols.size(), 0);
  for (size_t symbol = 0; symbol < values.size(); ++symbol)
    if (placed.symbols[symbol].kind == SymbolKind::kSize) values[symbol] = ranges[symbol].high;
  const int64_t groups = ranges[number].high + 1;
  LoopShares shares;
  shares.programs = placed.consumers.programs > 0 ? std::min(placed.consumers.programs, groups) : groups;
  std::vector<int64_t> steps(static_cast<size_t>(shares.programs), 0);
  for (int64_t group = 0; group < groups; ++group) {
    values[number] = group;
    for (const Symbol place : placed.places) values[place] = kernel::evaluate(placed.symbols[place].value, values);
    const int64_t points = kernel::evaluate(loop.end, values) - kernel::evaluate(loop.begin, values);
    const int64_t own = std::max<int64_t>(points + loop.step - 1, 0) / loop.step;
    shares.all += own;
    shares.most = std::max(shares.most, steps[static_cast<size_t>(group % shares.programs)] += own);
  }
  return shares;
}

}  // namespace kw::tile
