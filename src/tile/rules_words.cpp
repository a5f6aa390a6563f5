// Words that targets' steps write: of sorts, folds and reversed loops.
#include <fmt/format.h>

#include <bit>
#include <cstdint>

#include "tile/rules.hpp"

namespace kw::tile {
namespace {

void check_fold(const Program& program, const Instruction& fold) {
  if ((fold.at_once || fold.to_number) && !program.values[fold.results[0]].type.lanes.empty())
    throw BrokenRule{"a tile is folded whole, but lanes are left"};
}

void check_sort(const Program& program, const Instruction& scan) {
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
    case Kind::kFold: return check_fold(program, instruction);
    case Kind::kScan: return check_sort(program, instruction);
    case Kind::kFor: return check_counter(program, instruction);
    default: return;
  }
}

}  // namespace kw::tile
