#include "plan/concatenation.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "ir/op_registry.hpp"
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

// Concatenations as the search for places sees them.
struct Concatenated {
  NodeId node = kNoNode;
  ValueId result = kNoValue;
  size_t dim = 0;
  std::vector<ValueId> parts;
  std::vector<int64_t> starts;  // [part] along the dimension
};

Concatenated concatenated_by(const Graph& graph, NodeId node) {
  Concatenated one{node,
                   graph.nodes[node].results[0],
                   static_cast<size_t>(concatenated_dim(graph, node)),
                   concatenated_parts(graph, node),
                   {}};
  int64_t start = 0;
  for (ValueId part : one.parts) {
    one.starts.push_back(start);
    start += graph.type(part).shape[one.dim];
  }
  return one;
}

// Finds what lies where. Larger concatenations come first: smaller ones lie in them.
class Placer {
 public:
  Placer(const GraphFacts& facts, const Schedule& schedule) : facts_(facts), schedule_(schedule) {}

  std::map<ValueId, Place> run() {
    for (const GroupSchedule& group : schedule_.groups)
      if (is_stored_in_place(facts_.graph, group)) whole_.push_back(concatenated_by(facts_.graph, group.nodes[0]));
    if (whole_.empty()) return {};
    std::stable_sort(whole_.begin(), whole_.end(), [&](const Concatenated& one, const Concatenated& other) {
      return type_of(one).elements() > type_of(other).elements();
    });
    find_readers_and_makers();
    for (size_t at = 0; at < whole_.size(); ++at) place_whole(at);
    for (const Concatenated& one : whole_)
      for (size_t part = 0; part < one.parts.size(); ++part)
        if (made_.contains(one.parts[part])) place(one.parts[part], in(one, one.starts[part]));
    return std::move(places_);
  }

 private:
  const TensorType& type_of(const Concatenated& one) const { return facts_.graph.type(one.result); }

  // So far along a concatenation's dimension.
  Place in(const Concatenated& one, int64_t start) const {
    const auto placed = places_.find(one.result);
    const Place base = placed == places_.end() ? Place{one.result, 0} : placed->second;
    return {base.whole, base.offset + start * facts_.graph.type(base.whole).strides[one.dim]};
  }

  void find_readers_and_makers() {
    const Graph& graph = facts_.graph;
    const auto outputs = stored_values(facts_, nodes_of(schedule_));
    read_elsewhere_.assign(graph.nodes.size(), false);
    for (size_t group = 0; group < schedule_.groups.size(); ++group) {
      const bool is_kernel = plan::is_kernel(schedule_.groups[group].scheduler);
      for (NodeId node : schedule_.groups[group].nodes)
        if (!is_kernel || facts_.kinds[node] == plan::NodeKind::kScatter) read_elsewhere_[node] = true;
      for (ValueId value : outputs[group])  // in memory that is theirs to choose
        if (is_kernel && facts_.kinds[graph.values[value].producer] != plan::NodeKind::kScatter) made_.insert(value);
    }
    for (const Concatenated& one : whole_) read_elsewhere_[one.node] = false;
    for (ValueId value = 0; value < static_cast<ValueId>(facts_.roots.size()); ++value)
      if (facts_.roots[value] != value) viewed_.insert(facts_.roots[value]);
  }

  // One that is a part of a larger one along the same dimension, or whose parts are some of a larger one's that follow
  // each other there, lies in it: a concatenation that grows has one memory.
  void place_whole(size_t at) {
    const Concatenated& one = whole_[at];
    for (size_t larger = 0; larger < at; ++larger) {
      const Concatenated& other = whole_[larger];
      if (other.dim != one.dim || is_written_into(other.result)) continue;
      const auto part = std::find(other.parts.begin(), other.parts.end(), one.result);
      const auto first = part != other.parts.end()
                             ? part
                             : std::search(other.parts.begin(), other.parts.end(), one.parts.begin(), one.parts.end());
      if (first == other.parts.end()) continue;
      if (place(one.result, in(other, other.starts[static_cast<size_t>(first - other.parts.begin())]))) return;
    }
  }

  bool is_written_into(ValueId value) const {
    return std::any_of(facts_.readers[value].begin(), facts_.readers[value].end(),
                       [&](NodeId reader) { return facts_.kinds[reader] == plan::NodeKind::kScatter; });
  }

  // Kernels read it with the strides that it has there; all else would need a tensor of its own, and a view says how it
  // lies already. Concatenations have it at that place.
  bool place(ValueId value, const Place& place) {
    const TensorType& type = facts_.graph.type(value);
    if (places_.contains(value) || facts_.escapes[value] || viewed_.contains(value) ||
        place.offset * size_of(type.dtype) % kAligned != 0)
      return false;
    for (NodeId reader : facts_.readers[value])
      if (read_elsewhere_[reader]) return false;
    for (const Concatenated& one : whole_) {
      const auto count = std::count(one.parts.begin(), one.parts.end(), value);
      const auto at = static_cast<size_t>(std::find(one.parts.begin(), one.parts.end(), value) - one.parts.begin());
      if (count > 1 || (count == 1 && in(one, one.starts[at]) != place)) return false;
    }
    places_[value] = place;
    return true;
  }

  const GraphFacts& facts_;
  const Schedule& schedule_;
  std::vector<Concatenated> whole_;
  std::vector<bool> read_elsewhere_;  // [node] by other than kernels, or written into
  std::set<ValueId> made_, viewed_;
  std::map<ValueId, Place> places_;
};

class Splitter {
 public:
  Splitter(const Graph& graph, const Schedule& apart, const Schedule& joined, const DeviceDescription& device,
           const LibraryRates& rates)
      : facts_(graph, target_of(device).graph_forms()),
        apart_(apart),
        joined_(joined),
        device_(device),
        rates_(rates) {}

  // Where it is worth while.
  std::optional<Schedule> run() {
    find_candidates();
    // Each that gains nothing is left as it was, and what that changes is looked at again.
    while (!candidates_.empty()) {
      Schedule made = join_products(facts_.graph, split(), device_, rates_);
      const size_t before = candidates_.size();
      const auto places = places_of(facts_, made);
      keep_what_gains(made, places);
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

  // Concatenations in one memory gain together: what the first of them copies is there for all.
  void keep_what_gains(const Schedule& made, const std::map<ValueId, Place>& places) {
    const auto copies = copies_of(facts_, made, places);
    std::map<ValueId, double> gains;  // of each memory
    const auto memory = [&](const Candidate& one) {
      const auto place = places.find(facts_.graph.nodes[one.node].results[0]);
      return place == places.end() ? facts_.graph.nodes[one.node].results[0] : place->second.whole;
    };
    std::erase_if(candidates_, [&](const Candidate& one) {
      const auto own = copies.find(one.node);
      const auto bytes = own == copies.end() ? std::nullopt : gain(one, made, places, own->second);
      if (bytes) gains[memory(one)] += *bytes;
      return !bytes;
    });
    std::erase_if(candidates_, [&](const Candidate& one) { return gains[memory(one)] <= 0; });
  }

  // In bytes moved, less what makes it worth while; nullopt where something would be stored twice. Parts that are
  // stored by kernels that had to store them elsewhere before are not read and written once more, nor are those that a
  // concatenation before has copied to the same place.
  std::optional<double> gain(const Candidate& one, const Schedule& made, const std::map<ValueId, Place>& places,
                             const std::vector<PartCopy>& own) const {
    double spared = kLaunchBytes, spent = 0;  // the launch that copied them together
    const auto is_there = [&](const GroupSchedule& maker) {
      return std::find(made.groups.begin(), made.groups.end(), maker) != made.groups.end();
    };
    for (const GroupSchedule& maker : one.makers)
      if (is_there(maker)) spent += kLaunchBytes;
    for (ValueId part : concatenated_parts(facts_.graph, one.node)) {
      const NodeId producer = facts_.graph.values[facts_.roots[part]].producer;
      const auto maker = std::find_if(one.makers.begin(), one.makers.end(), [&](const GroupSchedule& maker) {
        return producer != kNoNode && holds(maker.nodes, producer);
      });
      if (!places.contains(part) && maker != one.makers.end()) return std::nullopt;
      if (std::any_of(own.begin(), own.end(), [&](const PartCopy& copy) { return copy.part == part; }))
        spent += kLaunchBytes;
      else if (maker == one.makers.end() || !is_there(*maker))
        spared += 2.0 * static_cast<double>(facts_.graph.type(part).bytes());
    }
    return spared - spent - kLaunchBytes;
  }

  // Do the schedulers make kernels of the groups as their results, and what they read, lie then?
  bool can_lower(const Schedule& made, const std::map<ValueId, Place>& places) const {
    const Graph placed = with_places(facts_.graph, places);
    const GraphFacts facts(placed, target_of(device_).graph_forms());
    const auto outputs = stored_values(facts, nodes_of(made));
    for (size_t group = 0; group < made.groups.size(); ++group) {
      const plan::Scheduler* scheduler = plan::find_scheduler(made.groups[group].scheduler, device_);
      if (!scheduler || outputs[group].empty() || !is_moved(made.groups[group].nodes, outputs[group], places)) continue;
      auto lowered = plan::lower_group(facts, made.groups[group].nodes, outputs[group]);
      if (!lowered || !plan::takes(*scheduler, *lowered) ||
          !plan::lowered_by(*scheduler, *std::move(lowered), made.groups[group].parameters, device_))
        return false;
    }
    return true;
  }

  // Does the group store or read something that lies in a concatenation?
  bool is_moved(const std::vector<NodeId>& nodes, const std::vector<ValueId>& outputs,
                const std::map<ValueId, Place>& places) const {
    bool moved = std::any_of(outputs.begin(), outputs.end(), [&](ValueId value) { return places.contains(value); });
    for (NodeId node : nodes)
      for_each_operand(facts_.graph.nodes[node], [&](ValueId operand) { moved = moved || places.contains(operand); });
    return moved;
  }

  GraphFacts facts_;
  const Schedule &apart_, &joined_;
  const DeviceDescription& device_;
  const LibraryRates& rates_;
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
  return Placer(facts, schedule).run();
}

std::map<NodeId, std::vector<PartCopy>> copies_of(const GraphFacts& facts, const Schedule& schedule,
                                                  const std::map<ValueId, Place>& places) {
  const Graph& graph = facts.graph;
  std::map<NodeId, std::vector<PartCopy>> copies;
  std::set<std::tuple<ValueId, ValueId, int64_t>> copied;  // whole, part, start
  for (const GroupSchedule& group : schedule.groups) {
    if (!is_stored_in_place(graph, group)) continue;
    const Concatenated one = concatenated_by(graph, group.nodes[0]);
    const auto placed = places.find(one.result);
    const Place base = placed == places.end() ? Place{one.result, 0} : placed->second;
    const int64_t stride = graph.type(base.whole).strides[one.dim];
    std::vector<PartCopy>& own = copies[group.nodes[0]];
    for (size_t at = 0; at < one.parts.size(); ++at) {
      const ValueId part = one.parts[at];
      const int64_t start = base.offset / stride + one.starts[at];
      if (!places.contains(part) && copied.insert({base.whole, part, start}).second)
        own.push_back({part, base.whole, start, graph.type(part).shape[one.dim]});
    }
  }
  return copies;
}

Graph with_places(const Graph& graph, const std::map<ValueId, Place>& places) {
  Graph placed = graph;
  for (const auto& [part, place] : places) placed.values[part].type.strides = graph.type(place.whole).strides;
  return placed;
}

Schedule with_concatenations_in_place(const Graph& graph, const Schedule& apart, Schedule joined,
                                      const DeviceDescription& device, const LibraryRates& rates) {
  auto made = Splitter(graph, apart, joined, device, rates).run();
  return made ? *std::move(made) : std::move(joined);
}

}  // namespace kw
