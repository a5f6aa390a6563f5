// Words that say how: of operations, scans and sorts, folds and reversed loops.
#include <fmt/format.h>

#include <bit>
#include <cstdint>

#include "tile/rules.hpp"
#include "tile/text_words.hpp"

namespace kw::tile {
namespace {

void check_fold(const Program& program, const Instruction& fold) {
  if ((fold.at_once || fold.to_number) && !program.values[fold.results[0]].type.lanes.empty())
    throw BrokenRule{"a tile is folded whole, but lanes are left"};
}

void check_op(const Program& program, const Instruction& one) {
  const std::string_view word = kExactnessWords[static_cast<size_t>(one.exactness)];
  const DType dtype = program.values[one.results[0]].type.dtype;
  const bool is_usual = one.exactness == Exactness::kUsual;
  require(has_form(one.op, one.exactness), "{} has no {} form", kernel::name_of(one.op), word);
  require(is_usual || dtype == DType::f32, "only operations in f32 have a form that is {}", word);
  require(!one.nonnegative || has_nonnegative_form(one.op, dtype),
          "{} of {} does not depend on whether its operands are negative", kernel::name_of(one.op), kw::name_of(dtype));
  require(one.op != ScalarOp::kPow || is_usual || one.nonnegative, "the approximate pow is one of nonnegative bases");
}

void check_way(const Instruction& scan) {
  const bool sorts = kernel::is_sort(scan.reduce);
  require(!sorts || !scan.reversed, "a sort is not reversed");
  require(scan.integer == 0 || (sorts && scan.integer > 0), "first places are those of a sort");
  require(scan.way != ScanWay::kNetwork || (scan.reduce == ReduceOp::kProd && !scan.reversed),
          "a network is of products that are not reversed");
  // What is picked is struck out, so that no two may be equal: places tell them apart.
  require(scan.way != ScanWay::kPicked || (sorts && scan.integer > 0 && scan.operands.size() == 2),
          "first places are picked of a sort with places");
}

void check_scan(const Program& program, const Instruction& scan) {
  check_way(scan);
  if (scan.way != ScanWay::kTopK) return;
  const bool fits = scan.integer > 0 && std::has_single_bit(static_cast<uint64_t>(scan.integer)) &&
                    2 * scan.integer <= width_of(program, scan.from);
  if (!kernel::is_sort(scan.reduce) || !fits)
    throw BrokenRule{"the first places alone are those of a sort, a power of two, and no more than half of the row"};
}

void check_counter(const Program& program, const Instruction& loop) {
  if (loop.counter < 0) return;
  const SymbolInfo& counter = program.symbols[loop.counter];
  if (!loop.reversed || counter.kind != SymbolKind::kLoop || !(counter.count == iterations_of(program, loop)))
    throw BrokenRule{fmt::format("'{}' does not count the iterations of a reversed loop", counter.name)};
}

}  // namespace

void check_words(const Program& program, const Instruction& instruction) {
  switch (instruction.kind) {
    case Kind::kOp: return check_op(program, instruction);
    case Kind::kFold: return check_fold(program, instruction);
    case Kind::kScan: return check_scan(program, instruction);
    case Kind::kFor: return check_counter(program, instruction);
    default: return;
  }
}

}  // namespace kw::tile
