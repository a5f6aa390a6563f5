// Schedule: plain data that, with a Graph and the emitter's version, decides the emitted source completely. JSON form
// in schedule_json.hpp.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.hpp"

namespace kw {

// One fusion group: the nodes it computes and how. Parameter names are the scheduler's own (plan/parameters.hpp): what
// it does not take, or takes no such value of, is an error.
struct GroupSchedule {
  std::vector<NodeId> nodes;
  std::string scheduler;  // of the target's schedulers, "extern": a library call, or "in_place" (concatenation.hpp)
  std::map<std::string, int64_t> parameters;
  // Of kernels that have another schedule than the scheduler gives them: its JSON (lower/schedule.hpp), by the kernel's
  // name (plan/kernel_schedules.hpp).
  std::map<std::string, std::string> kernels = {};
  // All kernels are then as the scheduler makes them by these.
  void take(std::map<std::string, int64_t> others) {
    parameters = std::move(others);
    kernels.clear();
  }
  bool operator==(const GroupSchedule&) const = default;
};

struct Schedule {
  std::string target;                 // its name
  std::vector<GroupSchedule> groups;  // in order of execution
  bool graphs = false;                // its launches are captured into a CUDA graph, where they can be (cuda_graph.hpp)
  bool operator==(const Schedule&) const = default;
};

}  // namespace kw
