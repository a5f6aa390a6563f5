// The kernels of attention (attention_scheduler.cpp), once its blocks are chosen.
#pragma once

#include "plan/scheduler.hpp"

namespace kw::plan {

struct AttentionBlocks {
  int64_t queries = 128, keys = 64;  // of one block, and of one step of its loop; at least 16
  int stages = 2;                    // steps whose loads are in flight
  int warps = 8;
  bool bulk = true;    // tiles are loaded by the bulk copy engine
  bool halves = true;  // single precision by three products of halves
};

ScheduledGroup attention_kernels(const LoweredGroup& group, const AttentionBlocks& blocks);

}  // namespace kw::plan
