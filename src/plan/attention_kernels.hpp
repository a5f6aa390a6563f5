// The kernels of attention (attention_scheduler.cpp), once its blocks are chosen.
#pragma once

#include "plan/scheduler.hpp"

namespace kw::plan {

struct AttentionBlocks {
  int64_t queries = 128, keys = 64;  // of one block, and of one step of its loop
  // Lanes of tiles. Where a query, or a value, has more features, they are in several tiles, and sums of values as
  // well.
  int64_t features = 64, columns = 64;
  int stages = 0;  // steps whose loads are in flight; 0: unsaid
  int warps = 4;
  int64_t parts = 1;          // blocks that share out one block's keys
  int64_t operand_bytes = 0;  // of shared memory, that a block's operands may take
  bool last_keys = false;     // blocks end behind the last key that their mask keeps
  bool bulk = false;          // tiles are loaded by the bulk copy engine
  bool halves = false;        // single precision by three products of halves
};

ScheduledGroup attention_kernels(const LoweredGroup& group, const AttentionBlocks& blocks);

}  // namespace kw::plan
