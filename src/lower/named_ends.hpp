// Ends of a CPU's loops over lanes that are no numbers.
#pragma once

#include "lower/loop_plan.hpp"

namespace kw::lower {

// The points of the lane before the end; where the loop goes on to whole vectors, the end.
tile::Index points_until(const tile::Program& program, tile::Symbol lane, const tile::Index& end, bool whole_vectors);

// Names each such end, once for all loops of a block that end there, before the outermost loop that leaves it as it is.
// Makes one number of those between which a loop runs.
void name_ends(const tile::Program& program, LoopPlan& plan);

}  // namespace kw::lower
