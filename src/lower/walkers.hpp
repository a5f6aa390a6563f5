// A step of lowering, after skip_masked: few blocks that walk, where most of many would only look and stop.
#pragma once

#include <span>

#include "lower/axes.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// The program's last instruction is an If. About `walkers` blocks are started, each of which walks along an axis of the
// grid, in one of two ways; as they are, many blocks stay where neither applies, or where they are few anyway.
// - What data say of other axes has to hold wherever the condition does: a walker asks that once, and takes every so
//   many-th block where it holds.
// - The condition is folds of tiles along that axis: a walker evaluates it once for a run of neighbours, with tiles
//   that are as wide as all of them, and walks the run where it holds.
// In either, each block asks its own condition when its turn comes.
void walk_blocks(tile::Program& program, std::span<const MappedAxis> axes, int64_t walkers);

}  // namespace kw::lower
