// Cooperative reductions of long rows, which are read once: the programs that share a row keep their blocks of it in
// registers and fold each other's partial results.
#pragma once

#include <optional>
#include <vector>

#include "plan/scheduler.hpp"

namespace kw::triton {

// The block of a row that one program keeps, for a kernel with ordered, coalesced axes whose reduce axes are contiguous
// in memory; 0 where rows cannot be spread: a reduction whose parts do not combine in floating point, or more programs
// a row than are sure to run at once on the device. `kept_loads`: tensors that a program keeps of each element of its
// block.
int64_t choose_cooperative_block(const plan::GroupKernel& kernel, int kept_loads, const DeviceDescription& device);

// The tile program of rows that blocks of at most `block` elements share, and its scratch tensors; nullopt: they
// cannot.
std::optional<plan::ScheduledTiles> spread_rows(plan::LoweredGroup group, int64_t block,
                                                const DeviceDescription& device, std::vector<plan::Scratch>& scratch);

}  // namespace kw::triton
