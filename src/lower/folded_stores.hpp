// A step of lowering: sums of a tile that all go to one place.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Has a store that combines a tile along lanes that neither its place nor its mask varies along fold these lanes first:
// one atomic operation for what would be as many as the tile is wide. Narrow numbers, which would be rounded on the
// way, and stores in the order of their points stay.
void fold_before_combining(tile::Program& program);

}  // namespace kw::lower
