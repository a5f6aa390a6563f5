#include "search/catalogue.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <set>

#include "ir/op_registry.hpp"
#include "plan/cost.hpp"
#include "plan/estimate.hpp"
#include "support/error.hpp"
#include "target/target.hpp"

namespace kw::search {

using plan::NodeKind;

Catalogue::Catalogue(const Graph& graph, const DeviceDescription& device)
    : facts_(graph, target_of(device).graph_forms()), device_(device) {}

GroupEntry* Catalogue::find(const std::vector<NodeId>& nodes, const std::vector<ValueId>& outputs) {
  const auto [place, added] = entries_.try_emplace({nodes, outputs});
  std::optional<GroupEntry>& entry = place->second;
  if (!added) return entry ? &*entry : nullptr;
  std::optional<double> library_seconds;
  if (outputs.empty()) {
    library_seconds = 0;
  } else if (nodes.size() == 1 && facts_.kinds[nodes[0]] == NodeKind::kExtern) {
    const Schedule alone{.target = std::string(target_of(device_).name()),
                         .groups = {{.nodes = nodes, .scheduler = plan::kLibraryCall, .parameters = {}}}};
    library_seconds = device_.launch_seconds + roofline_seconds(group_costs(facts_, alone).front(), device_);
  }
  auto lowered = outputs.empty() ? std::nullopt : plan::lower_group(facts_, nodes, outputs);
  const plan::Scheduler* scheduler = lowered ? plan::scheduler_for(*lowered, device_) : nullptr;
  if (!scheduler && !library_seconds) return nullptr;
  entry.emplace();
  entry->library_seconds = library_seconds;
  if (!scheduler) return &*entry;
  entry->scheduler = scheduler;
  entry->text = group_text(facts_.graph, nodes, outputs);
  auto& seconds = seconds_[entry->text];
  if (!seconds) seconds = std::make_shared<std::map<plan::Parameters, double>>();
  entry->seconds = seconds;
  entry->defaults = scheduler->defaults(*lowered, device_);
  entry->space = scheduler->space(*lowered, device_);
  entry->lowered = std::move(*lowered);
  return &*entry;
}

double Catalogue::seconds(GroupEntry& entry, const plan::Parameters& parameters) {
  const auto [place, added] = entry.seconds->try_emplace(parameters, 0.0);
  if (!added) return place->second;
  try {
    plan::check_parameters(entry.scheduler->name, parameters, device_, "a kernel of the search");
    place->second += plan::seconds_of(plan::lowered_for(*entry.scheduler, entry.lowered, parameters, device_), device_);
  } catch (const Error&) {
    place->second = std::numeric_limits<double>::infinity();  // parameters that do not go together
  }
  return place->second;
}

double Catalogue::seconds(GroupEntry& entry, const GroupSchedule& group) {
  if (group.scheduler == plan::kLibraryCall || !entry.scheduler) return entry.library_seconds.value_or(0.0);
  return seconds(entry, group.parameters);
}

double Catalogue::registers(const GroupEntry& entry, const plan::Parameters& parameters) const {
  double most = 0;
  try {
    plan::check_parameters(entry.scheduler->name, parameters, device_, "a kernel of the search");
    const plan::ScheduledGroup made = plan::lowered_for(*entry.scheduler, entry.lowered, parameters, device_);
    for (const auto& one : made.tiles) most = std::max(most, estimate(one.program, device_).registers);
  } catch (const Error&) { return std::numeric_limits<double>::infinity(); }
  return most;
}

double Catalogue::seconds(const Schedule& schedule) {
  const auto outputs = stored_values(facts_, nodes_of(schedule));
  double total = 0;
  for (size_t group = 0; group < schedule.groups.size(); ++group) {
    GroupEntry* entry = find(schedule.groups[group].nodes, outputs[group]);
    if (entry) total += seconds(*entry, schedule.groups[group]);
  }
  return total;
}

std::optional<std::vector<std::vector<NodeId>>> Catalogue::in_order(
    const std::vector<std::vector<NodeId>>& groups) const {
  const Graph& graph = facts_.graph;
  std::vector<int> holder(graph.nodes.size(), -1);
  for (size_t group = 0; group < groups.size(); ++group)
    for (const NodeId node : groups[group])
      if (holder[node] < 0) holder[node] = static_cast<int>(group);
  std::vector<std::set<int>> readers(groups.size());
  std::vector<int> missing(groups.size(), 0);
  const auto after = [&](int source, int group) {
    if (source >= 0 && source != group && readers[source].insert(group).second) ++missing[group];
  };
  for (size_t group = 0; group < groups.size(); ++group)
    for (const NodeId node : groups[group])
      for_each_operand(graph.nodes[node], [&](ValueId operand) {
        const NodeId producer = graph.values[facts_.roots[operand]].producer;
        if (producer != kNoNode && !std::binary_search(groups[group].begin(), groups[group].end(), producer))
          after(holder[producer], static_cast<int>(group));
      });
  // What takes random numbers keeps its order.
  NodeId previous = kNoNode;
  for (NodeId node = 0; node < static_cast<NodeId>(graph.nodes.size()); ++node)
    if (holder[node] >= 0 && !is_pure(graph.nodes[node]) && facts_.kinds[node] == NodeKind::kExtern) {
      if (previous != kNoNode) after(holder[previous], holder[node]);
      previous = node;
    }
  using Entry = std::pair<NodeId, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (size_t group = 0; group < groups.size(); ++group)
    if (missing[group] == 0) ready.push({groups[group].back(), static_cast<int>(group)});
  std::vector<std::vector<NodeId>> ordered;
  while (!ready.empty()) {
    const int group = ready.top().second;
    ready.pop();
    ordered.push_back(groups[group]);
    for (const int reader : readers[group])
      if (--missing[reader] == 0) ready.push({groups[reader].back(), reader});
  }
  if (ordered.size() != groups.size()) return std::nullopt;
  return ordered;
}

std::optional<Schedule> Catalogue::complete(std::vector<std::vector<NodeId>> groups, const Schedule& known) {
  std::erase_if(groups, [](const auto& nodes) { return nodes.empty(); });
  auto ordered = in_order(groups);
  if (!ordered) return std::nullopt;
  const auto outputs = stored_values(facts_, *ordered);
  const auto known_groups = nodes_of(known);
  const auto known_outputs = stored_values(facts_, known_groups);
  Schedule schedule{.target = std::string(target_of(device_).name()), .groups = {}, .graphs = known.graphs};
  for (size_t group = 0; group < ordered->size(); ++group) {
    const auto& nodes = (*ordered)[group];
    const auto same = std::find(known_groups.begin(), known_groups.end(), nodes);
    const size_t place = static_cast<size_t>(same - known_groups.begin());
    if (same != known_groups.end() && known_outputs[place] == outputs[group]) {
      schedule.groups.push_back(known.groups[place]);
      continue;
    }
    if (outputs[group].empty()) continue;  // every reader has its own copy
    GroupEntry* entry = find(nodes, outputs[group]);
    if (!entry) return std::nullopt;
    GroupSchedule one{.nodes = nodes, .scheduler = plan::kLibraryCall, .parameters = {}};
    if (entry->scheduler && (!entry->library_seconds || seconds(*entry, entry->defaults) <= *entry->library_seconds)) {
      one.scheduler = entry->scheduler->name;
      one.parameters = entry->defaults;
    }
    schedule.groups.push_back(std::move(one));
  }
  return schedule;
}

}  // namespace kw::search
