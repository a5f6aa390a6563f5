// The rules that every loop plan keeps.
#pragma once

#include <string>

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Throws kInternal that names the program, the step and the broken rule:
//
// - every instruction stands once, in the body where the program has it; what is repeated, as often as it is needed
// - the lanes of what an instruction reads and makes are open in loops around it, or in arrays
// - values are made, and their variables declared, before they are used, in scope; folds are used behind their loops
// - folds and scans begin with a loop over their lanes; what runs side by side, is shared or moves memory can
// - places fit what they hold; values that share an array are not needed at once, and parts of the scratch memory do
// not
//   overlap
//
// Of as much of the plan as the steps so far have made.
void verify_loops(const tile::Program& program, const LoopPlan& plan);
// The same answer as text; empty where all is well.
std::string find_loop_fault(const tile::Program& program, const LoopPlan& plan);

}  // namespace kw::lower
