// A step of the Triton target: which dimension of tiles each lane is, in programs whose tiles all have as many.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Gives the tiles of programs that map and fold (tile::maps_and_folds) one rank: broadcasting need not be spelled out,
// and the compiler moves no values among threads for it. Lanes have dimensions of their own, in order; but one that is
// folded shares that of a lane which it never meets in a tile: a row's few parts, which are folded before its elements
// are computed. So these tiles have fewer dimensions. Where blocks share rows, parts and elements are both folded, and
// share one, too.
void give_dimensions(tile::Program& program);

}  // namespace kw::lower
