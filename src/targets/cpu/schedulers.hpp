// The CPU's schedulers: one for each kind of group (plan/group_kinds.hpp), and for attention.
#pragma once

#include "plan/scheduler.hpp"

namespace kw::cpu {

const std::vector<plan::Scheduler>& schedulers();
const plan::Scheduler& attention_scheduler();

// Is the kernel, its axes in order, pointwise or one of folds, and are its parts loops of a tile program? Scatters,
// kernels that read a buffer which they write, and those without elements are not.
bool has_tile_form(const kernel_ir::Kernel& kernel);
plan::ScheduledTiles as_tiles(plan::LoweredGroup group);

}  // namespace kw::cpu
