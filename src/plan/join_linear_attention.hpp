// Which products of a schedule are linear attention of one scheduler's, with what makes their operands and what follows
// them.
#pragma once

#include "plan/schedule.hpp"
#include "target/device.hpp"

namespace kw {

// Groups that keep memory busy become one where it moves fewer bytes, by the cost model. All else stays as it is.
Schedule join_linear_attention(const Graph& graph, Schedule schedule, const DeviceDescription& device);

}  // namespace kw
