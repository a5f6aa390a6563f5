// The kernels of a convolution (convolution_scheduler.cpp), once its blocks are chosen.
#pragma once

#include "plan/product_kernels.hpp"

namespace kw::plan {

constexpr int64_t kWarp = 32;             // threads
constexpr int64_t kManyBlocksOfOne = 16;  // of a sample, so that its last may be less than full

struct ConvolutionBlocks {
  // Rows (filters, with the phases that stand among them) and positions of one block, and the depth of one step of its
  // loop; at least 16.
  int64_t filters = 128, positions = 128, depth = 64;
  int stages = 3;  // steps whose loads are in flight
  int warps = 8;
  bool halves = false;  // single precision by three products of halves, else by one
  int64_t rows = 1;     // depthwise: neighbouring rows of the result that a thread has, from what it loads once
  // Blocks are taken in turn by this many consumers (src/tile/consumers.hpp) of `programs` programs; 1: none.
  int64_t consumers = 1, programs = 0;
  bool phases_apart = false;  // a kernel for each outer phase, which walks the taps that its filters have
};

// Can a block's places be counted along the image as it is laid out, zeros around it included? The window of a tap is
// then a box of neighbours in memory, which the bulk copy engine loads; of places between two rows nothing is stored.
bool can_count_positions(const LoweredGroup& group, const ConvolutionBlocks& blocks);
// Can outer phases, of which some lack taps, have a kernel each? `depth`: of a block's step.
bool can_part_phases(const Convolution& convolution, int64_t depth);
// So many places of a sample, with those between rows.
int64_t counted_positions(const Convolution& convolution);

// Of a depthwise convolution: how many rows a thread may have, at most as many as are wished for. One where there is no
// dimension of rows; where a block makes parts of statistics, a divisor of their number.
int64_t rows_of_thread(const LoweredGroup& group, int64_t wished);
// Places of a sample with that many rows a thread: a column of them is one place.
int64_t places_of_threads(const Convolution& convolution, int64_t rows);

ScheduledGroup convolution_kernels(const LoweredGroup& group, const ConvolutionBlocks& blocks);

// The depth of a step that takes one row of taps with their channels at once, a power of two; 0 where there is but one.
// Blocks of that depth walk rows so where channels are few.
int64_t depth_of_tap_row(const Convolution& convolution);

// Channels of a group as the kernels keep them, so that loads of several stay aligned: at least as many as there are.
int64_t kept_channels(const Convolution& convolution);

}  // namespace kw::plan
