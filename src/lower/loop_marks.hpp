// How a CPU runs loops: side by side, shared by threads, counted in 32 bits, or as calls that move memory.
#pragma once

#include <vector>

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Sets what LoopStep says of loops besides their bodies, of Fors as their instructions ask and of lanes.
void mark_loops(const tile::Program& program, std::vector<LoopStep>& steps);

}  // namespace kw::lower
