// Where every tile of a loop plan lives.
#pragma once

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Gives every value its place, with what takes over another's array in it, and every step what is declared before it,
// and every sort its rows.
void place_tiles(const tile::Program& program, LoopPlan& plan);

}  // namespace kw::lower
