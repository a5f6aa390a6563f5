// How a CPU runs loops: side by side, shared by threads, counted in 32 bits, or as calls that move memory.
#pragma once

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Sets what LoopStep says of how loops run, of Fors as their instructions ask and of lanes, how folds go along them,
// how dots are computed, and whether blocks are uneven. Tiles have places.
void mark_loops(const tile::Program& program, LoopPlan& plan);

}  // namespace kw::lower
