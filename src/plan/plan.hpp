// Graph → Schedule → Program. Deterministic: equal graphs, schedules and devices give equal programs.
#pragma once

#include <string>
#include <vector>

#include "emit/program.hpp"
#include "ir/graph.hpp"
#include "plan/domain.hpp"
#include "plan/schedule.hpp"
#include "plan/scheduler.hpp"
#include "target/device.hpp"

namespace kw {

// The planner's own choice for a graph that fusion has grouped (passes/fusion.hpp); groups that cannot be one kernel
// are taken apart, what no scheduler of the device's target takes becomes a library call.
Schedule default_schedule(const Graph& graph, const DeviceDescription& device);

// Throws kUser when the schedule does not fit the graph (unknown scheduler or parameter, a value that is not allowed,
// nodes missing, a group that its scheduler cannot take) or is another target's.
Program make_program(const Graph& graph, const Schedule& schedule, const DeviceDescription& device);

// Runs the target's own steps of lowering on each of program.tiles, which nothing may change any more.
void lower_for(const Target& target, Program& program);

// A group that lowering refuses though its scheduler took it, and why.
struct RefusedGroup {
  std::vector<NodeId> nodes;
  std::string why;
};

// The schedule with such groups' nodes as library calls, each by itself: what a scheduler proposes and lowering refuses
// is a gap of ours, for which a module need not do without the rest. Notes them in `refused`.
Schedule without_refused(const Graph& graph, Schedule schedule, const DeviceDescription& device,
                         std::vector<RefusedGroup>& refused);

// The nodes of each group, in the order of the schedule.
std::vector<std::vector<NodeId>> nodes_of(const Schedule& schedule);

// Which values each group stores, given all groups in order: those that a group without their producer reads, and graph
// outputs. A node that stands in several groups is stored by the first.
std::vector<std::vector<ValueId>> stored_values(const plan::GraphFacts& facts,
                                                const std::vector<std::vector<NodeId>>& groups);

// What a search may change: for each group of the schedule, its scheduler's parameters and the values worth trying.
std::vector<std::vector<plan::ParameterRange>> search_space(const Graph& graph, const Schedule& schedule,
                                                            const DeviceDescription& device);

}  // namespace kw
