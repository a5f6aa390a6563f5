// The cost model of GPUs: it orders schedules, and need not be right in seconds.
#pragma once

#include "plan/estimate.hpp"

namespace kw::triton {

KernelEstimate estimate_of(const kernel_ir::Kernel& kernel, const DeviceDescription& device);

// Of a tile program: dots on the cores that their types and precision ask for, what its loads move through the last
// cache, and its buffers through memory once. What stands under an If is left out: it is for rare inputs.
double tile_seconds(const tile::Program& program, const DeviceDescription& device);

}  // namespace kw::triton
