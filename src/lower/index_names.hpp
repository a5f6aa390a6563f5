// Names for indices that a program uses in several places, or that are long: `row_index = row_block * 16 + row`.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Defines names at the start of the program, or of the innermost loop whose variable the index uses:
// - what an index is along one set of lanes, where that is more than a lane: `row_index`. Of programs that map and fold
//   each set of lanes has its own, with what the block's position or the loop adds: what is one number for the block is
//   added to pointers first, which leaves the lanes' offsets small;
// - quotients and remainders that no lane moves, and that would be written three times or more:
//   `phase_over_2_mod_2 = phase // 2 % 2`.
// Other indices are written with these names.
void name_indices(tile::Program& program);

}  // namespace kw::lower
