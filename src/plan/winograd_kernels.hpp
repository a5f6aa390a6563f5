// Convolutions of three by three taps by fewer multiplications: Winograd's F(2 x 2, 3 x 3). Two by two neighbouring
// results are linear forms of sixteen products of a form of the sixteen image elements below them and a form of the
// nine taps, where sums of products take thirty-six. Summed over channels, each of the sixteen is a product of
// matrices.
//
// Elements that differ much in size spoil their neighbours' results, infinities and NaN always: blocks that have such
// ones are computed again by plain sums (docs/precision.md).
#pragma once

#include "plan/scheduler.hpp"

namespace kw::plan {

struct WinogradBlocks {
  // Filters and channels that a block has at a time, and tiles of two by two results: whole vectors of them.
  int64_t filters = 64, channels = 64, places = 16;
};

// Two dimensions, three by three taps at stride one in f32, no groups, and nothing behind but what is pointwise.
bool can_use_winograd(const LoweredGroup& group);

// Places of a sample, a tile of results each; one more to a row, so that rows follow each other in memory.
int64_t winograd_places(const Convolution& convolution);

ScheduledGroup winograd_kernels(const LoweredGroup& group, const WinogradBlocks& blocks);

}  // namespace kw::plan
