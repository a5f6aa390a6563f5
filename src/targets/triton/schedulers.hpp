// The schedulers of groups' kernels for Triton, one for each kind of group (plan/group_kinds.hpp).
#pragma once

#include "plan/scheduler.hpp"

namespace kw::triton {

extern const plan::Scheduler kPointwiseScheduler, kReductionScheduler, kNormalisationScheduler, kSlidingScheduler,
    kBagScheduler, kScanScheduler;

}  // namespace kw::triton
