#include "lower/index_widths.hpp"

#include <algorithm>

#include "lower/address_sums.hpp"
#include "tile/definitions.hpp"

namespace kw::lower {

using tile::Instruction;
using tile::Symbol;
using tile::SymbolInfo;

void choose_index_widths(tile::Program& program) {
  const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program);
  const auto uses_wide = [&](const SymbolInfo& named) {
    for (size_t symbol = 0; symbol < program.symbols.size(); ++symbol) {
      const SymbolInfo& part = program.symbols[symbol];
      if (part.kind == tile::SymbolKind::kNamed && part.dtype == DType::i64 &&
          kernel::uses(named.value, static_cast<Symbol>(symbol)))
        return true;
    }
    return false;
  };
  const bool part_by_part = adds_part_by_part(program);
  const auto choose_parts = [&](tile::Access& access) {
    const std::vector<tile::Index> strides = tile::strides_of(program.buffers[access.buffer]);
    for (size_t i = 0; i < access.coordinates.size(); ++i) {
      tile::Coordinate& coordinate = access.coordinates[i];
      tile::SumOrder& sum = coordinate.sum;
      const tile::Index rest = coordinate.index - sum.first;
      const bool is_alone = part_by_part && coordinate.value == tile::kNoValue;
      sum.first_wide = (access.wide && !is_alone) || tile::leaves_32_bits(sum.first * strides[i], ranges);
      sum.wide = (access.wide && !part_by_part) || tile::leaves_32_bits(rest * strides[i], ranges);
    }
  };
  program.narrow = true;
  tile::for_each_mutable(program.body, [&](Instruction& one) {
    for (const tile::Index* index : {&one.index, &one.begin, &one.end})
      one.wide = one.wide || tile::leaves_32_bits(*index, ranges);
    if (one.kind == tile::Kind::kBarrier) one.wide = tile::leaves_32_bits(tile::arrivals_at(program, one), ranges);
    if (one.kind == tile::Kind::kDefine) {  // what it is made of is defined before
      SymbolInfo& named = program.symbols[one.symbol];
      named.dtype = uses_wide(named) || tile::leaves_32_bits(named.value, ranges) ? DType::i64 : DType::i32;
    }
    if (one.mode == tile::CopyMode::kBulk && one.kind != tile::Kind::kCopy)
      return;  // the copy engine takes coordinates
    for (tile::Access* access : {&one.access, &one.destination})
      access->wide = access->buffer >= 0 && tile::is_far(program, *access);
    if (one.access.buffer >= 0) choose_parts(one.access);
  });
}

}  // namespace kw::lower
