// In how many bits a GPU computes indices.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Makes the program narrow: named indices that fit 32 bits, with all sums on the way, are computed in them, and
// accesses whose places do not are marked `wide`, and so are the parts of places, the bounds of loops and other indices
// that do not.
void choose_index_widths(tile::Program& program);

}  // namespace kw::lower
