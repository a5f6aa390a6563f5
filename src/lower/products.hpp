// How a CPU computes the dots of a loop plan.
#pragma once

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// By the function that keeps blocks of sums in registers where columns lie side by side in both arrays; otherwise with
// columns side by side, or as sums. Tiles have places.
Product product_of(const tile::Program& program, const LoopPlan& plan, const tile::Instruction& dot);

}  // namespace kw::lower
