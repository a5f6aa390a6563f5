// Convolutions whose filters have one channel each (depthwise), on a CPU: sums of a few products, in loops along the
// image's rows.
#pragma once

#include "plan/scheduler.hpp"

namespace kw::plan {

// Filters over one channel in f32, few to a group, and nothing behind but what is pointwise; with some element of the
// image within the windows, no more taps than one expression should have, and rows whose elements lie side by side:
// where channels do, the library orders nothing anew.
bool can_sum_taps(const LoweredGroup& group);

ScheduledGroup depthwise_kernels(const LoweredGroup& group);

}  // namespace kw::plan
