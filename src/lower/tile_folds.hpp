// Folds of all that a tile has.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Says which folds fold a tile at once: where it has several dimensions, and either any order of its elements comes to
// the same, or all tiles of the program have the same dimensions. And which fold to a number, since a loop ends there,
// though tiles have dimensions that do not vary. Lanes have their dimensions.
void choose_folds_of_tiles(tile::Program& program);

}  // namespace kw::lower
