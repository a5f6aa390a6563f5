// The first step of lowering (pipeline.hpp): from a kernel and its schedule to a tile program.
#pragma once

#include "kernel/kernel.hpp"
#include "lower/axes.hpp"
#include "lower/schedule.hpp"

namespace kw::lower {

// Axes become grid symbols, loops and lanes. Where a width does not divide its axis, loads and stores get masks and
// folds the identity in lanes beyond the end. What is folded over a looped axis is carried by a loop; reductions that
// do not wait for each other share one, and what waits for them comes in a loop after it. What does not change in a
// loop stands before it.
//
// Throws kUser where the schedule cannot be kept: a folded axis in the grid, a state that is read where another block
// has it, a nest that opens an axis before what is folded over it is known, tiles with more than 2^20 elements.
Mapped arrange(const kernel::Kernel& kernel, const KernelSchedule& schedule);

}  // namespace kw::lower
