// The cost model of CPUs: it orders schedules, and need not be right in seconds.
#pragma once

#include "plan/estimate.hpp"

namespace kw::cpu {

KernelEstimate estimate_of(const kernel_ir::Kernel& kernel, const DeviceDescription& device);

}  // namespace kw::cpu
