#include "lower/index_widths.hpp"

#include <algorithm>

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
  program.narrow = true;
  tile::for_each_mutable(program.body, [&](Instruction& one) {
    if (one.kind == tile::Kind::kDefine) {  // what it is made of is defined before
      SymbolInfo& named = program.symbols[one.symbol];
      named.dtype = uses_wide(named) || tile::leaves_32_bits(named.value, ranges) ? DType::i64 : DType::i32;
    }
    if (one.mode == tile::CopyMode::kBulk && one.kind != tile::Kind::kCopy)
      return;  // the copy engine takes coordinates
    for (tile::Access* access : {&one.access, &one.destination})
      access->wide = access->buffer >= 0 && tile::is_far(program, *access);
  });
}

}  // namespace kw::lower
