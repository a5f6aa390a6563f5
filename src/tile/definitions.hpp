// Named indices: `index row_index: i32 = row_block * 16 + row` at the start of the program, or of a loop's body. Other
// indices are made of them as of any symbol. A program means what it does with every name written out.
#pragma once

#include "tile/program.hpp"

namespace kw::tile {

bool has_named_indices(const Program& program);

// The index with named ones written out, to the last.
Index written_out(const Program& program, const Index& index);
// The same of all indices of the program. Definitions stay where they are, and nothing uses them.
Program written_out(const Program& program);

// May the sum, taken term by term, leave 32 bits on the way, or what is divided in it?
bool leaves_32_bits(const Index& index, kernel::SymbolRanges ranges);
// May the place of the access, in elements from the buffer's start, leave 32 bits?
bool is_far(const Program& program, const Access& access);
// What a named index can be.
kernel::SymbolRange range_of_named(const Program& program, const Index& value);

}  // namespace kw::tile
