#include "plan/concatenation.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "ir/op_registry.hpp"
#include "plan/join_products.hpp"
#include "plan/plan.hpp"
#include "plan/traffic.hpp"
#include "target/target.hpp"

namespace kw {
namespace {

using plan::GraphFacts;
using plan::kLaunchBytes;

constexpr int64_t kAligned = 16;  // bytes to which kernels expect a tensor's beginning to be aligned

bool holds(const std::vector<NodeId>& nodes, NodeId node) {
  return std::binary_search(nodes.begin(), nodes.end(), node);
}

class Splitter {
 public:
  Splitter(const Graph& graph, const Schedule& apart, const Schedule& joined, const DeviceDescription& device)
      : facts_(graph, target_of(device).graph_forms()), apart_(apart), joined_(joined), device_(device) {}

  // Where it is worth while.
  std::optional<Schedule> run() {
    find_candidates();
    // Each that gains nothing is left as it was, and what that changes is looked at again.
    while (!candidates_.empty()) {
      Schedule made = join_products(facts_.graph, split(), device_);
      const size_t before = candidates_.size();
      const auto places = places_of(facts_, made);
      std::erase_if(candidates_, [&](const Candidate& one) { return !gains(one, made, places); });
      if (candidates_.size() == before) return can_lower(made, places) ? std::optional(std::move(made)) : std::nullopt;
    }
    return std::nullopt;
  }

 private:
  // A concatenation that a group stores and that makes nothing else, and what makes its parts, as kernels of their own.
  struct Candidate {
    NodeId node = kNoNode;
    size_t group = 0;  // of apart_
    std::vector<GroupSchedule> makers;
  };

  void find_candidates() {
    const auto outputs = stored_values(facts_, nodes_of(apart_));
    for (size_t at = 0; at < apart_.groups.size(); ++at) {
      const GroupSchedule& group = apart_.groups[at];
      const auto same = std::find(joined_.groups.begin(), joined_.groups.end(), group);
      if (same == joined_.groups.end()) continue;
      const auto is_one = [&](NodeId node) { return is_concatenation(facts_.graph, node); };
      if (std::count_if(group.nodes.begin(), group.nodes.end(), is_one) != 1) continue;
      Candidate one{*std::find_if(group.nodes.begin(), group.nodes.end(), is_one), at, {}};
      if (outputs[at] != facts_.graph.nodes[one.node].results) continue;
      if (auto makers = makers_of(group, one.node)) {
        one.makers = *std::move(makers);
        candidates_.push_back(std::move(one));
      }
    }
  }

  // The rest of the group as a kernel for each part, or for those that have something in common.
  std::optional<std::vector<GroupSchedule>> makers_of(const GroupSchedule& group, NodeId concatenation) const {
    std::vector<std::set<NodeId>> found;
    size_t count = 0;
    for (ValueId part : concatenated_parts(facts_.graph, concatenation)) {
      std::set<NodeId> made;
      add_makers(group.nodes, facts_.graph.values[facts_.roots[part]].producer, made);
      if (made.empty()) continue;
      std::erase_if(found, [&](std::set<NodeId>& other) {
        const bool meet = std::any_of(other.begin(), other.end(), [&](NodeId node) { return made.contains(node); });
        if (meet) made.insert(other.begin(), other.end());
        return meet;
      });
      found.push_back(std::move(made));
    }
    std::vector<GroupSchedule> makers;
    for (const std::set<NodeId>& made : found) {
      count += made.size();
      GroupSchedule maker{.nodes = {made.begin(), made.end()}, .scheduler = "", .parameters = {}};
      std::vector<ValueId> stored;
      for (ValueId part : concatenated_parts(facts_.graph, concatenation))
        if (made.contains(facts_.graph.values[facts_.roots[part]].producer)) stored.push_back(facts_.roots[part]);
      const auto lowered = plan::lower_group(facts_, maker.nodes, stored);
      const plan::Scheduler* scheduler = lowered ? plan::scheduler_for(*lowered, device_) : nullptr;
      if (!scheduler) return std::nullopt;
      maker.scheduler = scheduler->name;
      maker.parameters = scheduler->defaults(*lowered, device_);
      makers.push_back(std::move(maker));
    }
    // All of it is for the parts.
    return count + 1 == group.nodes.size() ? std::optional(std::move(makers)) : std::nullopt;
  }

  void add_makers(const std::vector<NodeId>& group, NodeId node, std::set<NodeId>& made) const {
    if (node == kNoNode || !holds(group, node) || !made.insert(node).second) return;
    for_each_operand(facts_.graph.nodes[node], [&](ValueId operand) {
      add_makers(group, facts_.graph.values[facts_.roots[operand]].producer, made);
    });
  }

  Schedule split() const {
    Schedule made{.target = apart_.target, .groups = {}, .graphs = apart_.graphs};
    for (size_t at = 0; at < apart_.groups.size(); ++at) {
      const auto one = std::find_if(candidates_.begin(), candidates_.end(),
                                    [&](const Candidate& candidate) { return candidate.group == at; });
      if (one == candidates_.end()) {
        made.groups.push_back(apart_.groups[at]);
        continue;
      }
      made.groups.insert(made.groups.end(), one->makers.begin(), one->makers.end());
      made.groups.push_back({.nodes = {one->node}, .scheduler = std::string(kStoredInPlace), .parameters = {}});
    }
    return made;
  }

  // Parts that are stored by kernels that had to store them elsewhere before are not read and written once more.
  bool gains(const Candidate& one, const Schedule& made, const std::map<ValueId, Place>& places) const {
    double spared = kLaunchBytes, spent = 0;  // the launch that copied them together
    for (const GroupSchedule& maker : one.makers)
      if (std::find(made.groups.begin(), made.groups.end(), maker) != made.groups.end()) spent += kLaunchBytes;
    for (ValueId part : concatenated_parts(facts_.graph, one.node)) {
      if (!places.contains(part)) {
        const NodeId producer = facts_.graph.values[facts_.roots[part]].producer;
        const bool is_made_anew = std::any_of(one.makers.begin(), one.makers.end(), [&](const GroupSchedule& maker) {
          return producer != kNoNode && holds(maker.nodes, producer);
        });
        if (is_made_anew) return false;  // what the concatenation made of it would be stored twice
        spent += kLaunchBytes;
        continue;
      }
      const NodeId producer = facts_.graph.values[part].producer;
      const auto stays = std::any_of(one.makers.begin(), one.makers.end(), [&](const GroupSchedule& maker) {
        return holds(maker.nodes, producer) &&
               std::find(made.groups.begin(), made.groups.end(), maker) != made.groups.end();
      });
      if (!stays) spared += 2.0 * static_cast<double>(facts_.graph.type(part).bytes());
    }
    return spared > spent + kLaunchBytes;
  }

  // Do the schedulers take the groups as their results lie then?
  bool can_lower(const Schedule& made, const std::map<ValueId, Place>& places) const {
    const Graph placed = with_places(facts_.graph, places);
    const GraphFacts facts(placed, target_of(device_).graph_forms());
    const auto outputs = stored_values(facts, nodes_of(made));
    for (size_t group = 0; group < made.groups.size(); ++group) {
      const bool has_parts = std::any_of(outputs[group].begin(), outputs[group].end(),
                                         [&](ValueId value) { return places.contains(value); });
      const plan::Scheduler* scheduler = plan::find_scheduler(made.groups[group].scheduler, device_);
      if (!has_parts || !scheduler) continue;
      const auto lowered = plan::lower_group(facts, made.groups[group].nodes, outputs[group]);
      if (!lowered || !plan::takes(*scheduler, *lowered)) return false;
    }
    return true;
  }

  GraphFacts facts_;
  const Schedule &apart_, &joined_;
  const DeviceDescription& device_;
  std::vector<Candidate> candidates_;
};

}  // namespace

bool is_concatenation(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  const Argument* tensors = node.find("tensors");
  const auto* list = tensors ? std::get_if<ValueList>(tensors) : nullptr;
  if (base_name(node.op) != "cat" || !list || list->ids.size() < 2) return false;
  const TensorType& whole = graph.type(node.results[0]);
  return whole.is_dense() && whole.elements() > 0 && std::all_of(list->ids.begin(), list->ids.end(), [&](ValueId part) {
           return part != kNoValue && graph.type(part).dtype == whole.dtype &&
                  graph.type(part).rank() == whole.rank() && graph.type(part).elements() > 0;
         });
}

bool is_stored_in_place(const Graph& graph, const GroupSchedule& group) {
  return group.scheduler == kStoredInPlace && group.nodes.size() == 1 && is_concatenation(graph, group.nodes[0]);
}

const std::vector<ValueId>& concatenated_parts(const Graph& graph, NodeId node) {
  return std::get<ValueList>(*graph.nodes[node].find("tensors")).ids;
}

int64_t concatenated_dim(const Graph& graph, NodeId node) {
  const int64_t dim = graph.nodes[node].integer("dim", 0);
  return dim < 0 ? dim + graph.type(graph.nodes[node].results[0]).rank() : dim;
}

std::map<ValueId, Place> places_of(const GraphFacts& facts, const Schedule& schedule) {
  std::map<ValueId, Place> places;
  const Graph& graph = facts.graph;
  const auto is_in_place = [&](const GroupSchedule& group) { return is_stored_in_place(graph, group); };
  if (std::none_of(schedule.groups.begin(), schedule.groups.end(), is_in_place)) return places;
  std::set<ValueId> made;  // by kernels of the schedule, in memory that is theirs to choose
  const auto outputs = stored_values(facts, nodes_of(schedule));
  for (size_t group = 0; group < schedule.groups.size(); ++group)
    if (plan::is_kernel(schedule.groups[group].scheduler))
      for (ValueId value : outputs[group])
        if (facts.kinds[graph.values[value].producer] != plan::NodeKind::kScatter) made.insert(value);
  for (const GroupSchedule& group : schedule.groups) {
    if (!is_in_place(group)) continue;
    const NodeId node = group.nodes[0];
    const ValueId result = graph.nodes[node].results[0];
    const TensorType& whole = graph.type(result);
    const auto dim = static_cast<size_t>(concatenated_dim(graph, node));
    const std::vector<ValueId>& parts = concatenated_parts(graph, node);
    int64_t offset = 0;
    for (ValueId part : parts) {
      const bool is_its_own = made.contains(part) && !facts.escapes[part] &&
                              facts.readers[part] == std::vector<NodeId>{node} &&
                              std::count(parts.begin(), parts.end(), part) == 1;
      if (is_its_own && offset * size_of(whole.dtype) % kAligned == 0) places[part] = {result, offset};
      offset += graph.type(part).shape[dim] * whole.strides[dim];
    }
  }
  return places;
}

Graph with_places(const Graph& graph, const std::map<ValueId, Place>& places) {
  Graph placed = graph;
  for (const auto& [part, place] : places) placed.values[part].type.strides = graph.type(place.whole).strides;
  return placed;
}

Schedule with_concatenations_in_place(const Graph& graph, const Schedule& apart, Schedule joined,
                                      const DeviceDescription& device) {
  auto made = Splitter(graph, apart, joined, device).run();
  return made ? *std::move(made) : std::move(joined);
}

}  // namespace kw
