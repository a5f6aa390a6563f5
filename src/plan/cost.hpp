// Bytes and FLOPs of groups and graphs, for the roofline and for the report.
#pragma once

#include <vector>

#include "ir/graph.hpp"
#include "plan/schedule.hpp"
#include "target/device.hpp"

namespace kw {

struct Cost {
  double bytes = 0;  // tensors read once and written once
  double flops = 0;
};

// Per group of the schedule: the tensors that cross its border.
std::vector<Cost> group_costs(const Graph& graph, const Schedule& schedule);

// The least any program can do: every input that matters read once, every output written once, every node's arithmetic
// done once.
Cost graph_cost(const Graph& graph);

// Of all that goes in and comes out, parameters and buffers too.
int64_t input_bytes(const Graph& graph);

// Seconds below which the device's measured ceilings allow no program to be.
double roofline_seconds(const Cost& cost, const DeviceDescription& device);

}  // namespace kw
