#include "search/moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "plan/op_table.hpp"

namespace kw::search {

using plan::OpClass;
using Nodes = std::vector<NodeId>;

namespace {

constexpr size_t kMostCombinations = 4096;   // of one group's parameters; beyond, only every other value is combined
constexpr size_t kMostJoinedNodes = 96;

std::string label(const Graph& graph, const Nodes& nodes) { return std::string(plan::base_name(graph.nodes[nodes.back()])); }

std::vector<std::vector<ValueId>> outputs_of(const Catalogue& catalogue, const Schedule& schedule) {
  std::vector<Nodes> groups;
  for (const GroupSchedule& group : schedule.groups) groups.push_back(group.nodes);
  return stored_values(catalogue.facts(), groups);
}

std::string text_of(const plan::Parameters& parameters, const plan::Parameters& before) {
  std::string text;
  for (const auto& [name, value] : parameters) {
    const auto known = before.find(name);
    if (known == before.end() || known->second != value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

bool contains(const Nodes& nodes, NodeId node) { return std::binary_search(nodes.begin(), nodes.end(), node); }

Nodes joined(const Nodes& left, const Nodes& right) {
  Nodes both;
  std::set_union(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(both));
  return both;
}

Nodes without(const Nodes& nodes, const Nodes& gone) {
  Nodes rest;
  std::set_difference(nodes.begin(), nodes.end(), gone.begin(), gone.end(), std::back_inserter(rest));
  return rest;
}

class Grouping {
 public:
  Grouping(Catalogue& catalogue, const Schedule& schedule, int most) : catalogue_(catalogue), schedule_(schedule), most_(most) {
    for (const GroupSchedule& group : schedule.groups) {
      groups_.push_back(group.nodes);
      library_.push_back(group.scheduler == "extern");
    }
  }

  std::vector<Move> run() {
    cuts();
    joins();
    stores();
    recomputations();
    return std::move(moves_);
  }

 private:
  const Graph& graph() const { return catalogue_.graph(); }
  const plan::GraphFacts& facts() const { return catalogue_.facts(); }

  bool add(std::vector<Nodes> groups, const std::string& change) {
    auto schedule = catalogue_.complete(std::move(groups), schedule_);
    if (!schedule || *schedule == schedule_) return false;
    moves_.push_back({std::move(*schedule), change, true});
    return true;
  }

  template <typename Visit>
  void for_each_producer(NodeId node, Visit&& visit) const {
    for_each_operand(graph().nodes[node], [&](ValueId operand) {
      if (const NodeId producer = graph().values[facts().roots[operand]].producer; producer != kNoNode) visit(producer);
    });
  }

  // What `node` needs of its group, itself included.
  Nodes needed_by(const Nodes& group, NodeId node) const {
    std::set<NodeId> found{node};
    std::vector<NodeId> open{node};
    while (!open.empty()) {
      const NodeId one = open.back();
      open.pop_back();
      for_each_producer(one, [&](NodeId producer) {
        if (contains(group, producer) && found.insert(producer).second) open.push_back(producer);
      });
    }
    return {found.begin(), found.end()};
  }

  void cuts() {
    for (size_t group = 0; group < groups_.size(); ++group) {
      const Nodes& nodes = groups_[group];
      if (library_[group] || nodes.size() < 2) continue;
      int made = 0;
      std::set<Nodes> seen;
      // Reductions first: their results are small, so that storing them costs least.
      Nodes order = nodes;
      std::stable_partition(order.begin(), order.end(), [&](NodeId node) { return facts().classes[node] == OpClass::kReduce; });
      for (const NodeId node : order) {
        if (made >= most_) break;
        const Nodes first = needed_by(nodes, node), rest = without(nodes, first);
        if (rest.empty() || !seen.insert(first).second) continue;
        std::vector<Nodes> groups = groups_;
        groups[group] = first;
        groups.push_back(rest);
        made += add(std::move(groups), "cut after " + label(graph(), {node}));
      }
    }
  }

  // Groups that exchange or share a tensor; failing those, neighbours in the order, whose launches can be one.
  void joins() {
    std::vector<std::vector<ValueId>> touched(groups_.size());
    for (size_t group = 0; group < groups_.size(); ++group) {
      std::set<ValueId> values;
      for (const NodeId node : groups_[group]) {
        for_each_operand(graph().nodes[node], [&](ValueId operand) { values.insert(facts().roots[operand]); });
        for (const ValueId result : graph().nodes[node].results)
          if (result != kNoValue) values.insert(result);
      }
      touched[group].assign(values.begin(), values.end());
    }
    int made = 0;
    for (size_t left = 0; left < groups_.size() && made < 2 * most_; ++left)
      for (size_t right = left + 1; right < groups_.size() && made < 2 * most_; ++right) {
        if (library_[left] || library_[right] || groups_[left].size() + groups_[right].size() > kMostJoinedNodes) continue;
        std::vector<ValueId> common;
        std::set_intersection(touched[left].begin(), touched[left].end(), touched[right].begin(), touched[right].end(), std::back_inserter(common));
        if (common.empty() && right != left + 1) continue;
        std::vector<Nodes> groups = groups_;
        groups[left] = joined(groups_[left], groups_[right]);
        groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(right));
        made += add(std::move(groups), "join " + label(graph(), groups_[left]) + " and " + label(graph(), groups_[right]));
      }
  }

  // Nodes that several groups compute become a group of their own.
  void stores() {
    std::map<NodeId, std::vector<size_t>> holders;
    for (size_t group = 0; group < groups_.size(); ++group)
      for (const NodeId node : groups_[group]) holders[node].push_back(group);
    std::set<std::vector<size_t>> seen;
    int made = 0;
    for (const auto& [node, in] : holders) {
      if (in.size() < 2 || made >= most_ || !seen.insert(in).second) continue;
      Nodes shared = groups_[in.front()];
      for (const size_t group : in) {
        Nodes both;
        std::set_intersection(shared.begin(), shared.end(), groups_[group].begin(), groups_[group].end(), std::back_inserter(both));
        shared = std::move(both);
      }
      std::vector<Nodes> groups = groups_;
      for (const size_t group : in) groups[group] = without(groups[group], shared);
      groups.push_back(shared);
      made += add(std::move(groups), "store " + label(graph(), shared));
    }
  }

  // A group without reductions is computed again by each of its readers.
  void recomputations() {
    int made = 0;
    for (size_t group = 0; group < groups_.size() && made < most_; ++group) {
      const Nodes& nodes = groups_[group];
      if (library_[group] || nodes.size() > 16) continue;
      bool possible = true;
      for (const NodeId node : nodes) {
        possible = possible && facts().classes[node] != OpClass::kReduce;
        for (const ValueId result : graph().nodes[node].results) possible = possible && (result == kNoValue || !facts().escapes[result]);
      }
      if (!possible) continue;
      std::vector<Nodes> groups;
      int readers = 0;
      for (size_t other = 0; other < groups_.size(); ++other) {
        if (other == group) continue;
        bool reads = false;
        for (const NodeId node : groups_[other])
          for_each_producer(node, [&](NodeId producer) { reads = reads || (contains(nodes, producer) && !contains(groups_[other], producer)); });
        if (reads && library_[other]) possible = false;
        readers += reads;
        groups.push_back(reads && !library_[other] ? joined(groups_[other], nodes) : groups_[other]);
      }
      if (possible && readers > 1) made += add(std::move(groups), "compute " + label(graph(), nodes) + " again in its readers");
    }
  }

  Catalogue& catalogue_;
  const Schedule& schedule_;
  int most_;
  std::vector<Nodes> groups_;
  std::vector<bool> library_;
  std::vector<Move> moves_;
};

}  // namespace

std::vector<Move> parameter_moves(Catalogue& catalogue, const Schedule& schedule) {
  std::vector<Move> moves;
  const auto outputs = outputs_of(catalogue, schedule);
  for (size_t group = 0; group < schedule.groups.size(); ++group) {
    const GroupSchedule& now = schedule.groups[group];
    GroupEntry* entry = now.scheduler == "extern" ? nullptr : catalogue.find(now.nodes, outputs[group]);
    if (!entry || !entry->scheduler) continue;
    for (const plan::ParameterRange& range : entry->space)
      for (const int64_t value : range.values) {
        const auto known = now.parameters.find(range.name);
        if (known != now.parameters.end() && known->second == value) continue;
        Move move{schedule, "", false};
        move.schedule.groups[group].parameters[range.name] = value;
        move.change = label(catalogue.graph(), now.nodes) + ": " + text_of(move.schedule.groups[group].parameters, now.parameters);
        moves.push_back(std::move(move));
      }
  }
  return moves;
}

std::vector<Move> promising_moves(Catalogue& catalogue, const Schedule& schedule, int most) {
  std::vector<Move> moves;
  const auto outputs = outputs_of(catalogue, schedule);
  for (size_t group = 0; group < schedule.groups.size(); ++group) {
    const GroupSchedule& now = schedule.groups[group];
    GroupEntry* entry = now.scheduler == "extern" ? nullptr : catalogue.find(now.nodes, outputs[group]);
    if (!entry || !entry->scheduler || entry->space.empty()) continue;
    size_t combinations = 1;
    for (const plan::ParameterRange& range : entry->space) combinations *= std::max<size_t>(1, range.values.size());
    const size_t step = combinations > kMostCombinations ? 2 : 1;
    std::vector<plan::Parameters> all{now.parameters};
    for (const plan::ParameterRange& range : entry->space) {
      std::vector<plan::Parameters> longer;
      for (const plan::Parameters& one : all)
        for (size_t value = 0; value < range.values.size(); value += step) {
          if (longer.size() >= kMostCombinations) break;
          longer.push_back(one);
          longer.back()[range.name] = range.values[value];
        }
      all = std::move(longer);
    }
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < all.size(); ++i)
      if (const double seconds = catalogue.seconds(*entry, all[i]); std::isfinite(seconds)) order.emplace_back(seconds, i);
    std::sort(order.begin(), order.end());
    // Equal to the last digit: the scheduler clamps both to the same kernel.
    double previous = -1;
    int made = 0;
    for (const auto& [seconds, i] : order) {
      if (made >= most) break;
      if (seconds == previous || all[i] == now.parameters) continue;
      previous = seconds;
      ++made;
      Move move{schedule, label(catalogue.graph(), now.nodes) + ": " + text_of(all[i], now.parameters), false};
      move.schedule.groups[group].parameters = all[i];
      moves.push_back(std::move(move));
    }
  }
  return moves;
}

std::vector<Move> grouping_moves(Catalogue& catalogue, const Schedule& schedule, int most) { return Grouping(catalogue, schedule, most).run(); }

}  // namespace kw::search
