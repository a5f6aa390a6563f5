// Launches of one program, one for each value of a run-time size, as one launch of blocks that walk those values and
// wait for each other after each: recurrent layers, whose weights then stay on chip.
#pragma once

#include <span>

#include "tile/program.hpp"

namespace kw::lower {

// Two buffers of a program that are the same memory: a launch reads what those before it wrote.
struct SameMemory {
  int read, written;
};

// `size` becomes the variable of a loop from 0 to `count`. Of each pair the written buffer goes, and the other is read
// and written. A last buffer, `arrived`, is added, which counts blocks and is zero at the start. What no step changes
// is loaded and computed before the loop, and what depends on the step alone is prefetched by one step. All blocks must
// run at once.
tile::Program with_steps_inside(tile::Program program, tile::Symbol size, int64_t count,
                                std::span<const SameMemory> same);

}  // namespace kw::lower
