// The kernels of a convolution (convolution_scheduler.cpp), once its blocks are chosen.
#pragma once

#include "plan/product_kernels.hpp"

namespace kw::plan {

struct ConvolutionBlocks {
  // Rows (filters, with the phases that stand among them) and positions of one block, and the depth of one step of its
  // loop; at least 16.
  int64_t filters = 128, positions = 128, depth = 64;
  int stages = 3;  // steps whose loads are in flight
  int warps = 8;
  bool halves = false;  // single precision by three products of halves, else by one
};

ScheduledGroup convolution_kernels(const LoweredGroup& group, const ConvolutionBlocks& blocks);

// Channels of a group as the kernels keep them, so that loads of several stay aligned: at least as many as there are.
int64_t kept_channels(const Convolution& convolution);

}  // namespace kw::plan
