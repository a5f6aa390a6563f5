// Linear recurrences of elements (LinearSteps in recurrence.hpp) as one kernel, whose lanes each walk all steps.
#pragma once

#include "plan/scheduler.hpp"

namespace kw::plan {

struct LinearStepBlocks {
  int64_t lanes = 128;   // elements of a block
  int64_t prefetch = 1;  // steps whose operands are loaded together
  int warps = 1;
  bool flat = false;  // lanes count elements of all axes; else of the last one
};

ScheduledGroup linear_step_kernel(const LoweredGroup& group, const LinearStepBlocks& blocks);

}  // namespace kw::plan
