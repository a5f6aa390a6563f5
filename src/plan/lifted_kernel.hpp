// A kernel in KernelIR whose axes have blocks, as a Kernel with its KernelSchedule and the tile program of both.
#pragma once

#include "plan/scheduler.hpp"

namespace kw::plan {

// How a block goes along what it walks (lower::AxisSchedule, lower::KernelSchedule).
struct Walk {
  bool network = false;        // scans: products in one order
  int64_t ahead = 1;           // of rows that are scanned: blocks that are read before the first of them is worked on
  bool stops = false;          // loops end where the data say that their folds do
  bool wide_accesses = false;  // elements side by side are read and written together
};

// What one block covers is a tile, what it walks a loop, what several share out is in the grid, and what has one point
// only is no axis. Without loops, all that a block reads is there before it stores anything, so that a result may take
// an operand's memory.
ScheduledTiles as_tiles(LoweredGroup group, const Walk& walk = {});

// Of rows that several blocks share (AxisSchedule::cooperative): each has a block of every reduce axis, and none is
// looped over. Where they meet is in new scratch tensors.
ScheduledTiles as_cooperative_tiles(LoweredGroup group, std::vector<Scratch>& scratch);

}  // namespace kw::plan
