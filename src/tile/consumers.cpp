#include "tile/consumers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.hpp"
#include "tile/rules.hpp"

namespace kw::tile {
namespace {

// Of the products of four warps on Hopper (wgmma): multiples of these, of operands of 16 bits.
constexpr int64_t kRows = 64, kColumns = 8, kDepth = 16, kMostColumns = 256;
constexpr int kWarps = 4, kConsumers = 2;  // whose registers are divided so (emit/triton/consumers.cpp)

bool is_bulk_load(const Instruction& one) { return one.kind == Kind::kLoad && one.mode == CopyMode::kBulk; }

void check_product(const Program& program, const Instruction& dot) {
  const TileType &sum = program.values[dot.results[0]].type, &left = program.values[dot.operands[1]].type,
                 &right = program.values[dot.operands[2]].type;
  if (sum.dtype != DType::f32 || size_of(left.dtype) != 2 || size_of(right.dtype) != 2 || sum.lanes.size() != 2)
    throw BrokenRule{"consumers multiply matrices of 16-bit numbers and sum in f32"};
  for (const TileType* operand : {&left, &right})
    for (const Symbol lane : operand->lanes)
      if (!has_lane(sum.lanes, lane) && width_of(program, lane) % kDepth != 0)
        throw BrokenRule{fmt::format("consumers sum {} products at a time", kDepth)};
  const int64_t rows = width_of(program, sum.lanes[0]), columns = width_of(program, sum.lanes[1]);
  if (rows % kRows != 0 || columns % kColumns != 0 || columns > kMostColumns)
    throw BrokenRule{fmt::format("consumers multiply multiples of {} rows by multiples of {} columns, at most {}",
                                 kRows, kColumns, kMostColumns)};
}

void check_loop(const Program& program, const Instruction& loop) {
  if (loop.stages < 1 || loop.reversed || loop.unrolled)
    throw BrokenRule{"the loop of consumers has stages, and is neither reversed nor unrolled"};
  std::vector<bool> copied(program.values.size());
  for (const Instruction& one : loop.body) {
    if (is_bulk_load(one)) copied[one.results[0]] = true;
    else if (one.kind != Kind::kDot && one.kind != Kind::kOp && one.kind != Kind::kConstant)
      throw BrokenRule{"the loop of consumers loads boxes and multiplies them, and does nothing else"};
    if (one.kind == Kind::kDot) {
      check_product(program, one);
      if (!copied[one.operands[1]] || !copied[one.operands[2]])
        throw BrokenRule{"consumers multiply boxes that are loaded in the same iteration"};
    }
    for (size_t place = 0; place < one.operands.size(); ++place)
      if (copied[one.operands[place]] && (one.kind != Kind::kDot || place == 0))
        throw BrokenRule{"what consumers load is only multiplied"};
  }
  for (const Value value : loop.yields)
    if (copied[value]) throw BrokenRule{"what consumers load is only multiplied"};
}

void check_consumers(const Program& program) {
  const Consumers& consumers = program.consumers;
  const auto blocks = kernel::as_constant(program.symbols[consumers.along].count);
  if (!blocks || *blocks % consumers.count != 0)
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
  check_loop(program, *loop);
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

bool is_of_consumer(const Program& program, const Instruction& load) {
  return std::any_of(load.access.coordinates.begin(), load.access.coordinates.end(), [&](const Coordinate& coordinate) {
    return kernel::uses(coordinate.index, program.consumers.along);
  });
}

}  // namespace kw::tile
