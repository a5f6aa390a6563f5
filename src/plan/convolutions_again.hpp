// Convolutions whose results are made twice instead of being stored.
#pragma once

#include "ir/graph.hpp"
#include "plan/schedule.hpp"
#include "target/device.hpp"

namespace kw {

// The schedule with convolutions computed again by the one group that reads what they store, where the model expects
// less time: once for the statistics of a norm, which alone are stored, and once with the norm behind it. The kernels
// that lay out the image and the filters are shared (repeated_kernels.hpp).
Schedule with_convolutions_again(const Graph& graph, Schedule schedule, const DeviceDescription& device);

}  // namespace kw
