// What several iterations of a CPU's loop have in common of the places that they read and write.
#pragma once

#include "lower/loop_plan.hpp"

namespace kw::lower {

// Gives steps their `starts` and `left`: before a loop over a lane, or a For without loops inside, what is known there
// of the places of accesses inside it is computed once, if it is more than a few letters.
void hoist_starts(const tile::Program& program, LoopPlan& plan);

}  // namespace kw::lower
