// Ends of a CPU's loops over lanes that are no numbers.
#pragma once

#include "lower/loop_plan.hpp"

namespace kw::lower {

// Names each such end, once for all loops of a block that end there, before the outermost loop that leaves it as it is.
void name_ends(const tile::Program& program, LoopPlan& plan);

}  // namespace kw::lower
