// Steps of targets that only count the blocks they start: how a block finds its place in the grid.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// On a GPU: nothing where the launch can have the grid's own dimensions, which it has for a grid of one dimension and
// for up to three of programs that map and fold, whose blocks may begin in any order. Else blocks have places.
void number_blocks_of_gpu(tile::Program& program);

// On a CPU one loop goes through all blocks, one by one: those of several dimensions have places, the last of which
// varies fastest, as threads take runs of blocks. Blocks do not run as one.
void number_blocks_of_cpu(tile::Program& program);

}  // namespace kw::lower
