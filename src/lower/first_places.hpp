// Loops over sorted rows of which only the first places are stored.
#pragma once

#include "lower/loop_plan.hpp"

namespace kw::lower {

// Ends loops over lanes that sorts go along where the masks of all that is stored there do. Such masks hold in them.
void end_after_first_places(const tile::Program& program, LoopPlan& plan);

}  // namespace kw::lower
