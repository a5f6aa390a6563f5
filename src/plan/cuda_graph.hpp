// CUDA graphs: whether the launches of a Program can be captured into one, and whether that pays.
#pragma once

#include <string>

#include "emit/program.hpp"
#include "ir/graph.hpp"
#include "plan/schedule.hpp"
#include "target/device.hpp"

namespace kw {

// Why a graph cannot replay what the program does at a call: a part of a sentence ("it takes random numbers"), or empty
// where one can.
std::string why_not_captured(const Graph& graph, const Program& program);

// What a call costs, in seconds, by the cost model.
struct LaunchCosts {
  int launches = 0;   // of kernels of ours and of library calls
  double host = 0;    // until all of them are launched one by one
  double device = 0;  // of the kernels
  double copies = 0;  // that a graph adds: of what a call passes, and of what it returns
};
LaunchCosts launch_costs(const Graph& graph, const Program& program, const DeviceDescription& device);

// Whether a graph is expected to be clearly faster.
bool graph_pays(const LaunchCosts& costs);

}  // namespace kw
