// A step of lowering: blocks that would store nothing stop early.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Everything that no mask of a store needs runs only where one of these masks holds somewhere in the block: in an If,
// which is the last instruction then. Throws kUser where a store has no mask, or stands in a loop: then no block can
// know beforehand.
void skip_masked_blocks(tile::Program& program);

}  // namespace kw::lower
