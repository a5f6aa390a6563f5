// What is known of each possible group of a graph: can it be a kernel, which scheduler takes it, its parameters, their
// ranges, what they cost. Groups are looked at once and remembered, so that thousands of schedules can be compared in
// the time of a few.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/domain.hpp"
#include "plan/plan.hpp"
#include "plan/scheduler.hpp"

namespace kw::search {

// The group alone as a graph with renamed values: equal text for equal work.
std::string group_text(const Graph& graph, const std::vector<NodeId>& nodes, const std::vector<ValueId>& outputs);

struct GroupEntry {
  std::string text;                            // group_text(); layers that are repeated share it, and their parameters
  const plan::Scheduler* scheduler = nullptr;  // nullptr: a library call alone, or a group that stores nothing
  plan::LoweredGroup lowered;
  plan::Parameters defaults;
  std::vector<plan::ParameterRange> space;
  std::optional<double> library_seconds;  // of a library call, where it can be one; 0: it stores nothing
  std::shared_ptr<std::map<plan::Parameters, double>> seconds;  // by parameters, as asked for; of all groups of this
                                                                // text
};

class Catalogue {
 public:
  Catalogue(const Graph& graph, const DeviceDescription& device);

  // nullptr: these nodes cannot be one kernel, nor are they one library call.
  GroupEntry* find(const std::vector<NodeId>& nodes, const std::vector<ValueId>& outputs);

  // Seconds that the cost model gives a group under these parameters; infinity where it cannot be lowered so.
  double seconds(GroupEntry& entry, const plan::Parameters& parameters);
  // The same of a group as it is scheduled, which may be a library call.
  double seconds(GroupEntry& entry, const GroupSchedule& group);
  double seconds(const Schedule& schedule);
  // Registers that a thread of its hungriest kernel asks for, by the cost model; infinity where it cannot be lowered
  // so.
  double registers(const GroupEntry& entry, const plan::Parameters& parameters) const;

  // The groups in an order in which they can run, each with its scheduler and defaults; parameters of groups that
  // `known` has too (with the same outputs) stay. nullopt: there is no order, or a group is no kernel.
  std::optional<Schedule> complete(std::vector<std::vector<NodeId>> groups, const Schedule& known);

  const Graph& graph() const { return facts_.graph; }
  const plan::GraphFacts& facts() const { return facts_; }
  const DeviceDescription& device() const { return device_; }

 private:
  std::optional<std::vector<std::vector<NodeId>>> in_order(const std::vector<std::vector<NodeId>>& groups) const;

  plan::GraphFacts facts_;
  DeviceDescription device_;
  std::map<std::pair<std::vector<NodeId>, std::vector<ValueId>>, std::optional<GroupEntry>> entries_;
  std::map<std::string, std::shared_ptr<std::map<plan::Parameters, double>>> seconds_;  // by text
};

}  // namespace kw::search
