// The kernels of a recurrence (recurrence_scheduler.cpp), once its blocks are chosen.
#pragma once

#include "plan/scheduler.hpp"

namespace kw::plan {

struct RecurrenceBlocks {
  int64_t batch = 16, units = 16, depth = 64;  // of one block, and of one step of its loop; at least 16 in products
  int stages = 3;                              // steps whose loads are in flight
  int warps = 4;
  bool joined = true;        // the gates' products are one
  bool gates_first = false;  // and its rows, not its columns
  bool persistent = false;   // one launch, whose blocks keep their weights and wait for each other after each wave
  int parts = 2;             // bfloat16 that the factors of an exact product are taken apart into, where persistent
  bool summed = false;       // what weights multiply is added up by threads, not multiplied as tiles: in full f32
};

ScheduledGroup recurrence_kernels(const LoweredGroup& group, const RecurrenceBlocks& blocks);

}  // namespace kw::plan
