// Bytes and FLOPs of groups and graphs, for the roofline and for the report.
#pragma once

#include <vector>

#include "plan/domain.hpp"
#include "plan/schedule.hpp"
#include "target/device.hpp"

namespace kw {

struct Cost {
  double bytes = 0;  // tensors read once and written once
  double flops = 0;
};

// Per group of the schedule: the tensors that cross its border.
std::vector<Cost> group_costs(const plan::GraphFacts& facts, const Schedule& schedule);

// What a call of eager holds at once beside its inputs, every result in memory of its own until its last reader has
// run.
int64_t peak_bytes(const Graph& graph);

// By which problems take turns with a GPU's memory. To be judged, one takes some six times its inputs (parameters and
// buffers too) and outputs, for copies and the double-precision reference, and four times what lies between them.
int64_t bytes_in_work(const Graph& graph);

// Seconds below which the device's measured ceilings allow no program to be.
double roofline_seconds(const Cost& cost, const DeviceDescription& device);

}  // namespace kw
