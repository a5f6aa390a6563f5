// The kernels of linear attention (linear_attention_scheduler.cpp), once its blocks are chosen.
#pragma once

#include "plan/scheduler.hpp"

namespace kw::plan {

struct LinearAttentionBlocks {
  int64_t queries = 64;  // of a block
  int64_t keys = 64;     // of a step
  int64_t parts = 1;     // blocks that share out a head's keys
  int stages = 2;        // steps whose loads are in flight
  int warps = 4;
  bool six_products = true;  // single precision on tensor cores, by three bf16 numbers for each
};

ScheduledGroup linear_attention_kernels(const LoweredGroup& group, const LinearAttentionBlocks& blocks);

}  // namespace kw::plan
