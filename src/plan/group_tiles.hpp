// A group's kernel and its schedule, as a Kernel with its KernelSchedule and the tile program of both.
#pragma once

#include "lower/schedule.hpp"
#include "plan/scheduler.hpp"

namespace kw::plan {

// How an axis is taken by blocks of so many points, by a tile where that is all of it; and how it is walked.
lower::AxisSchedule in_blocks(const GroupKernel& kernel, int axis, int64_t width);
lower::AxisSchedule in_loop(int64_t width);
// Blocks of one point, and all of what is folded or scanned in tiles.
lower::KernelSchedule in_single_points(const GroupKernel& kernel, int64_t warps);

// `schedule` has an entry for each axis of the kernel, and the words that are the scheduler's to choose; which loads
// come first, which walks turn round and what may be approximate is told from the kernel. What has one point only is no
// axis. Without loops, all that a block reads is there before it stores anything, so that a result may take an
// operand's memory.
ScheduledTiles as_tiles(LoweredGroup group, lower::KernelSchedule schedule);

// Of rows that several blocks share (AxisSchedule::cooperative). Where they meet is in new scratch tensors.
ScheduledTiles as_cooperative_tiles(LoweredGroup group, lower::KernelSchedule schedule, std::vector<Scratch>& scratch);

}  // namespace kw::plan
