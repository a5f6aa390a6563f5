// The CPU's schedulers: one for each kind of group (plan/group_kinds.hpp), for attention, matrix products,
// convolutions and recurrent layers.
#pragma once

#include "plan/scheduler.hpp"
#include "targets/cpu/loop_hints.hpp"

namespace kw::cpu {

const std::vector<plan::Scheduler>& schedulers();
const plan::Scheduler& attention_scheduler();
const plan::Scheduler& contraction_scheduler();
const plan::Scheduler& convolution_scheduler();
const plan::Scheduler& recurrence_scheduler();

// Of a kernel whose axes are in order. Throws kUser where it scans or folds more than such programs do.
plan::ScheduledTiles as_tiles(plan::LoweredGroup group, LoopHints hints);

}  // namespace kw::cpu
