// Recurrent layers as loops over their steps, for targets whose blocks walk a sequence alone: each block has some
// samples and all units, and carries their states from step to step.
#pragma once

#include "plan/scheduler.hpp"

namespace kw::plan {

struct RecurrenceLoops {
  int64_t samples = 1;              // of a block
  int64_t rows = 16, columns = 16;  // of a block of the input's products, made for all steps at once
  int64_t vector = 1;               // tiles have whole vectors of so many units
};

ScheduledGroup recurrence_loops(const LoweredGroup& group, const RecurrenceLoops& blocks);

}  // namespace kw::plan
