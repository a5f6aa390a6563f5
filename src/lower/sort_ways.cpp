#include "lower/sort_ways.hpp"

#include <bit>
#include <cstdint>

namespace kw::lower {

void choose_ways_of_sorts(tile::Program& program) {
  tile::for_each_mutable(program.body, [&](tile::Instruction& one) {
    const bool sorts = one.kind == tile::Kind::kScan && kernel::is_sort(one.reduce);
    if (!sorts || one.integer == 0 || one.way != tile::ScanWay::kFree) return;
    const auto first = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(one.integer)));
    if (2 * first > tile::width_of(program, one.from)) return;
    one.integer = first;
    one.way = tile::ScanWay::kTopK;
  });
}

}  // namespace kw::lower
