#include "search/standing.hpp"

#include <algorithm>
#include <map>

#include "plan/op_table.hpp"

namespace kw::search {

namespace {

constexpr size_t kMostGroups = 16;     // looked at from one schedule
constexpr double kWorthLooking = 0.9;  // of the time is in the groups that are looked at

std::vector<std::vector<ValueId>> outputs_of(const Catalogue& catalogue, const Schedule& schedule) {
  std::vector<std::vector<NodeId>> groups;
  for (const GroupSchedule& group : schedule.groups) groups.push_back(group.nodes);
  return stored_values(catalogue.facts(), groups);
}

}  // namespace

std::string label(const Graph& graph, const std::vector<NodeId>& nodes) {
  return std::string(base_name(graph.nodes[nodes.back()]));
}

GroupStanding standing_of(Catalogue& catalogue, const Schedule& schedule) {
  GroupStanding standing;
  std::map<std::pair<std::string, plan::Parameters>, size_t> known;
  const auto outputs = outputs_of(catalogue, schedule);
  for (size_t group = 0; group < schedule.groups.size(); ++group) {
    const GroupSchedule& now = schedule.groups[group];
    GroupEntry* entry = catalogue.find(now.nodes, outputs[group]);
    standing.seconds.push_back(entry ? catalogue.seconds(*entry, now) : 0.0);
    standing.total += standing.seconds.back();
    const bool ours = entry && entry->scheduler && plan::find_scheduler(now.scheduler, catalogue.device());
    standing.entries.push_back(ours ? entry : nullptr);
    standing.alike.emplace_back();
    if (!ours) continue;
    // Repeated layers get the same parameters.
    const size_t first = known.emplace(std::pair{entry->text, now.parameters}, group).first->second;
    if (first == group) standing.worth.push_back(group);
    standing.alike[first].push_back(group);
  }
  const auto cost = [&](size_t group) {
    return standing.seconds[group] * static_cast<double>(standing.alike[group].size());
  };
  std::stable_sort(standing.worth.begin(), standing.worth.end(), [&](size_t a, size_t b) { return cost(a) > cost(b); });
  double ours = 0, seen = 0;
  for (const size_t group : standing.worth) ours += cost(group);
  size_t kept = 0;
  while (kept < std::min(standing.worth.size(), kMostGroups) && (kept < 2 || seen < kWorthLooking * ours))
    seen += cost(standing.worth[kept++]);
  standing.worth.resize(kept);
  return standing;
}

}  // namespace kw::search
