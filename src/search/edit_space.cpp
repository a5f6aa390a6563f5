#include "search/edit_space.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "plan/op_table.hpp"
#include "search/standing.hpp"
#include "support/text.hpp"

namespace kw::search {

namespace {

constexpr size_t kMostOperations = 24;  // of a group that are named

std::string list_of(const Graph& graph, const std::set<ValueId>& values) {
  std::vector<std::string> names;
  for (const ValueId value : values) {
    const TensorType& type = graph.type(value);
    std::string shape;
    for (const int64_t size : type.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
    names.push_back(std::string(name_of(type.dtype)) + "[" + shape + "]");
  }
  return names.empty() ? "nothing" : join(names, " ");
}

std::string work_of(const Catalogue& catalogue, const std::vector<NodeId>& nodes, const std::vector<ValueId>& outputs) {
  const Graph& graph = catalogue.graph();
  const auto inside = [&](ValueId value) {
    const NodeId producer = graph.values[value].producer;
    return producer != kNoNode && std::binary_search(nodes.begin(), nodes.end(), producer);
  };
  std::vector<std::string> operations;
  std::set<ValueId> read;
  for (const NodeId node : nodes) {
    operations.emplace_back(base_name(graph.nodes[node]));
    for_each_operand(graph.nodes[node], [&](ValueId operand) {
      if (const ValueId root = catalogue.facts().roots[operand]; !inside(root)) read.insert(root);
    });
  }
  if (operations.size() > kMostOperations) {
    operations.resize(kMostOperations);
    operations.push_back("...");
  }
  return join(operations, ", ") + "; reads " + list_of(graph, read) + "; writes " +
         list_of(graph, {outputs.begin(), outputs.end()});
}

}  // namespace

std::vector<EditedGroup> edit_space(Catalogue& catalogue, const Schedule& first) {
  const GroupStanding standing = standing_of(catalogue, first);
  const auto outputs = stored_values(catalogue.facts(), nodes_of(first));
  std::vector<EditedGroup> space;
  std::map<std::string, int> names;
  for (const size_t group : standing.worth) {
    const GroupSchedule& now = first.groups[group];
    EditedGroup one{.name = label(catalogue.graph(), now.nodes),
                    .groups = standing.alike[group],
                    .work = work_of(catalogue, now.nodes, outputs[group]),
                    .scheduler = now.scheduler,
                    .seconds = standing.seconds[group] * static_cast<double>(standing.alike[group].size()),
                    .ranges = {},
                    .defaults = {}};
    for (const plan::ParameterRange& range : standing.entries[group]->space) {
      const auto known = now.parameters.find(range.name);
      const int64_t own = known == now.parameters.end() ? range.unsaid : known->second;
      std::set<int64_t> values(range.values.begin(), range.values.end());
      values.insert(own);
      if (values.size() < 2) continue;
      one.ranges.push_back({range.name, {values.begin(), values.end()}, range.unsaid});
      one.defaults.push_back(own);
    }
    if (one.ranges.empty()) continue;
    if (const int count = ++names[one.name]; count > 1) one.name += "_" + std::to_string(count);
    space.push_back(std::move(one));
  }
  return space;
}

Schedule edited(const std::vector<EditedGroup>& space, const Schedule& first, const Edit& edit) {
  Schedule schedule = first;
  for (size_t i = 0; i < space.size(); ++i)
    for (size_t range = 0; range < space[i].ranges.size(); ++range) {
      if (edit[i][range] == space[i].defaults[range]) continue;  // as it is, also where that is to say nothing
      for (const size_t group : space[i].groups) {
        plan::Parameters parameters = schedule.groups[group].parameters;
        parameters[space[i].ranges[range].name] = edit[i][range];
        schedule.groups[group].take(std::move(parameters));
      }
    }
  return schedule;
}

std::string change_text(const std::vector<EditedGroup>& space, const Edit& edit) {
  std::vector<std::string> groups;
  for (size_t i = 0; i < space.size(); ++i) {
    std::vector<std::string> changes;
    for (size_t range = 0; range < space[i].ranges.size(); ++range)
      if (edit[i][range] != space[i].defaults[range])
        changes.push_back(space[i].ranges[range].name + " " + std::to_string(edit[i][range]));
    if (!changes.empty()) groups.push_back(space[i].name + ": " + join(changes, ", "));
  }
  return groups.empty() ? "as it is" : join(groups, "; ");
}

double combinations(const std::vector<EditedGroup>& space) {
  double count = 1;
  for (const EditedGroup& group : space)
    for (const plan::ParameterRange& range : group.ranges) count *= static_cast<double>(range.values.size());
  return count;
}

}  // namespace kw::search
