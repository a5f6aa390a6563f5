// A step of lowering: blocks that would store nothing stop early.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Everything that no mask of a store needs runs only where one of these masks holds somewhere in the block. Throws
// kUser where a store has no mask, or stands in a loop: then no block can know beforehand.
//
// With `walkers`, a block walks along an axis of the grid, so that about that many blocks are started, where the masks
// hang on data that do not: whoever finds nothing to do in those stops at once. Which takes a block as long as to
// start.
void skip_masked_blocks(tile::Program& program, int64_t walkers);

}  // namespace kw::lower
