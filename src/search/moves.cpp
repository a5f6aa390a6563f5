#include "search/moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "plan/op_table.hpp"
#include "search/likeliest.hpp"
#include "search/standing.hpp"

namespace kw::search {

using plan::NodeKind;
using Nodes = std::vector<NodeId>;

namespace {

constexpr size_t kMostJoinedNodes = 96;
constexpr int kMostAttempts = 8;  // per regrouping that is wanted

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
  Grouping(Catalogue& catalogue, const Schedule& schedule, int most)
      : catalogue_(catalogue), schedule_(schedule), most_(most), standing_(standing_of(catalogue, schedule)) {
    for (const GroupSchedule& group : schedule.groups) {
      groups_.push_back(group.nodes);
      library_.push_back(!plan::find_scheduler(group.scheduler, catalogue.device()));
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
    ++attempts_;
    auto schedule = catalogue_.complete(std::move(groups), schedule_);
    if (!schedule || *schedule == schedule_) return false;
    const double seconds = catalogue_.seconds(*schedule);
    moves_.push_back({std::move(*schedule), change, true, seconds});
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
    for (const size_t group : standing_.worth) {
      const Nodes& nodes = groups_[group];
      if (nodes.size() < 2) continue;
      int made = 0;
      attempts_ = 0;
      std::set<Nodes> seen;
      // Reductions first: their results are small, so that storing them costs least.
      Nodes order = nodes;
      std::stable_partition(order.begin(), order.end(),
                            [&](NodeId node) { return facts().kinds[node] == NodeKind::kReduce; });
      for (const NodeId node : order) {
        if (made >= most_ || attempts_ >= kMostAttempts * most_) break;
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
    attempts_ = 0;
    std::set<std::pair<size_t, size_t>> seen;
    for (const size_t one : standing_.worth)
      for (size_t other = 0; other < groups_.size(); ++other) {
        if (made >= 2 * most_ || attempts_ >= kMostAttempts * most_) return;
        const auto [left, right] = std::minmax(one, other);
        if (left == right || library_[other] || groups_[left].size() + groups_[right].size() > kMostJoinedNodes ||
            !seen.insert({left, right}).second)
          continue;
        std::vector<ValueId> common;
        std::set_intersection(touched[left].begin(), touched[left].end(), touched[right].begin(), touched[right].end(),
                              std::back_inserter(common));
        if (common.empty() && right != left + 1) continue;
        std::vector<Nodes> groups = groups_;
        groups[left] = joined(groups_[left], groups_[right]);
        groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(right));
        made += add(std::move(groups),
                    "join " + label(graph(), groups_[left]) + " and " + label(graph(), groups_[right]));
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
        std::set_intersection(shared.begin(), shared.end(), groups_[group].begin(), groups_[group].end(),
                              std::back_inserter(both));
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
    for (const size_t group : standing_.worth) {
      const Nodes& nodes = groups_[group];
      if (made >= most_) break;
      if (nodes.size() > 16) continue;
      bool possible = true;
      for (const NodeId node : nodes) {
        possible = possible && facts().kinds[node] != NodeKind::kReduce;
        for (const ValueId result : graph().nodes[node].results)
          possible = possible && (result == kNoValue || !facts().escapes[result]);
      }
      if (!possible) continue;
      std::vector<Nodes> groups;
      int readers = 0;
      for (size_t other = 0; other < groups_.size(); ++other) {
        if (other == group) continue;
        bool reads = false;
        for (const NodeId node : groups_[other])
          for_each_producer(node, [&](NodeId producer) {
            reads = reads || (contains(nodes, producer) && !contains(groups_[other], producer));
          });
        if (reads && library_[other]) possible = false;
        readers += reads;
        groups.push_back(reads && !library_[other] ? joined(groups_[other], nodes) : groups_[other]);
      }
      if (possible && readers > 1)
        made += add(std::move(groups), "compute " + label(graph(), nodes) + " again in its readers");
    }
  }

  Catalogue& catalogue_;
  const Schedule& schedule_;
  int most_, attempts_ = 0;
  GroupStanding standing_;
  std::vector<Nodes> groups_;
  std::vector<bool> library_;
  std::vector<Move> moves_;
};

Move with_parameters(Catalogue& catalogue, const Schedule& schedule, const GroupStanding& standing, size_t group,
                     const plan::Parameters& parameters) {
  const GroupSchedule& now = schedule.groups[group];
  Move move{schedule, label(catalogue.graph(), now.nodes) + ": " + text_of(parameters, now.parameters), false, 0};
  const double each = catalogue.seconds(*standing.entries[group], parameters) - standing.seconds[group];
  move.seconds = standing.total + each * static_cast<double>(standing.alike[group].size());
  for (const size_t same : standing.alike[group]) move.schedule.groups[same].take(parameters);
  return move;
}

// An operation that a library has, too.
void library_moves(Catalogue& catalogue, const Schedule& schedule, std::vector<Move>& moves) {
  std::vector<Nodes> groups;
  for (const GroupSchedule& group : schedule.groups) groups.push_back(group.nodes);
  const auto outputs = stored_values(catalogue.facts(), groups);
  const double total = catalogue.seconds(schedule);
  int made = 0;
  for (size_t group = 0; group < schedule.groups.size() && made < kMostAttempts; ++group) {
    const GroupSchedule& now = schedule.groups[group];
    GroupEntry* entry = now.nodes.size() == 1 ? catalogue.find(now.nodes, outputs[group]) : nullptr;
    if (!entry || !entry->scheduler || !entry->library_seconds) continue;
    const bool is_call = now.scheduler == plan::kLibraryCall;
    GroupSchedule other{.nodes = now.nodes, .scheduler = plan::kLibraryCall, .parameters = {}};
    if (is_call) {
      other.scheduler = entry->scheduler->name;
      other.parameters = entry->defaults;
    }
    Move move{schedule, label(catalogue.graph(), now.nodes) + (is_call ? ": a kernel" : ": the library's"), true, 0};
    // The model knows less of libraries than of kernels: however dear they seem to it, they are worth a look.
    move.seconds = std::min(total + catalogue.seconds(*entry, other) - catalogue.seconds(*entry, now), total);
    move.schedule.groups[group] = std::move(other);
    moves.push_back(std::move(move));
    ++made;
  }
}

}  // namespace

std::string text_of(const plan::Parameters& parameters, const plan::Parameters& before) {
  std::string text;
  for (const auto& [name, value] : parameters) {
    const auto known = before.find(name);
    if (known == before.end() || known->second != value)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

std::vector<Move> parameter_moves(Catalogue& catalogue, const Schedule& schedule) {
  std::vector<Move> moves;
  const GroupStanding standing = standing_of(catalogue, schedule);
  for (const size_t group : standing.worth) {
    const GroupSchedule& now = schedule.groups[group];
    GroupEntry* entry = standing.entries[group];
    for (const plan::ParameterRange& range : entry->space)
      for (const int64_t value : range.values) {
        const auto known = now.parameters.find(range.name);
        if (known != now.parameters.end() && known->second == value) continue;
        plan::Parameters parameters = now.parameters;
        parameters[range.name] = value;
        moves.push_back(with_parameters(catalogue, schedule, standing, group, parameters));
      }
  }
  library_moves(catalogue, schedule, moves);
  return moves;
}

std::vector<Move> promising_moves(Catalogue& catalogue, const Schedule& schedule, int most) {
  std::vector<Move> moves;
  const GroupStanding standing = standing_of(catalogue, schedule);
  for (const size_t group : standing.worth) {
    const GroupSchedule& now = schedule.groups[group];
    GroupEntry* entry = standing.entries[group];
    if (entry->space.empty()) continue;
    // Equal to the last digit: the scheduler clamps both to the same kernel.
    double previous = -1;
    int made = 0;
    const auto cost = [&](const plan::Parameters& one) { return catalogue.seconds(*entry, one); };
    const std::map<plan::Parameters, double> known = *entry->seconds;  // which `cost` adds to
    for (const auto& [seconds, parameters] : likeliest(*entry, now.parameters, cost, known)) {
      if (made >= most) break;
      if (seconds == previous || parameters == now.parameters) continue;
      previous = seconds;
      ++made;
      moves.push_back(with_parameters(catalogue, schedule, standing, group, parameters));
    }
  }
  return moves;
}

std::vector<Move> grouping_moves(Catalogue& catalogue, const Schedule& schedule, int most) {
  return Grouping(catalogue, schedule, most).run();
}

}  // namespace kw::search
