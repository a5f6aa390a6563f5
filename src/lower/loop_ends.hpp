// Loops over lanes that end where the lanes do.
#pragma once

#include <vector>

#include "lower/loop_plan.hpp"
#include "tile/lane_ends.hpp"

namespace kw::lower {

// Gives every loop over a lane the end that the lane has in the innermost For around it (lane_ends.hpp).
void end_loops(const tile::LaneEnds& ends, std::vector<LoopStep>& steps);

}  // namespace kw::lower
