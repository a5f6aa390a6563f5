#include "plan/statistics.hpp"

#include <algorithm>
#include <set>

#include "plan/plan.hpp"
#include "plan/group_kinds.hpp"
#include "plan/scheduler.hpp"

namespace kw::plan {
namespace {

class Division {
 public:
  // `tensor`: whose statistics; kNoValue: all that the group has.
  Division(const GraphFacts& facts, std::span<const NodeId> nodes, ValueId tensor)
      : facts_(facts), graph_(facts.graph), nodes_(nodes.begin(), nodes.end()), tensor_(tensor) {}

  std::optional<StatisticsApart> run() {
    for (NodeId node : nodes_) {
      const bool folds = is_statistic(node);
      if (tensor_ == kNoValue && !folds && !is_light(node)) return std::nullopt;
      if (folds) folds_.insert(node);
      if (folds || reads_statistics(node)) follow_.insert(node);
    }
    find_before();
    if (folds_.empty() || !std::all_of(before_.begin(), before_.end(), [&](NodeId node) { return is_light(node); }))
      return std::nullopt;
    find_statistics();
    StatisticsApart apart;
    for (NodeId node : nodes_)
      (before_.contains(node)       ? apart.before
       : statistics_.contains(node) ? apart.statistics
                                    : apart.after)
          .push_back(node);
    return needs(apart.before, apart.after) || needs(apart.statistics, apart.after) ? std::nullopt
                                                                                    : std::optional(std::move(apart));
  }

 private:
  NodeId producer(ValueId value) const {
    const NodeId node = graph_.values[facts_.roots[value]].producer;
    return std::binary_search(nodes_.begin(), nodes_.end(), node) ? node : kNoNode;
  }

  bool is_light(NodeId node) const {
    return facts_.kinds[node] == NodeKind::kPointwise || facts_.kinds[node] == NodeKind::kFactory;
  }

  bool is_statistic(NodeId node) const {
    return facts_.kinds[node] == NodeKind::kReduce && base_name(graph_.nodes[node]) == "var_mean" &&
           !reads_statistics(node) && (tensor_ == kNoValue || is_made_of_tensor(node));
  }

  bool is_made_of_tensor(NodeId node) const {
    bool found = false;
    for_each_operand(graph_.nodes[node], [&](ValueId operand) {
      const NodeId from = producer(operand);
      found = found || facts_.roots[operand] == tensor_ ||
              (from != kNoNode && is_light(from) && is_made_of_tensor(from));
    });
    return found;
  }

  bool reads_statistics(NodeId node) const {
    bool reads = false;
    for_each_operand(graph_.nodes[node],
                     [&](ValueId operand) { reads = reads || follow_.contains(producer(operand)); });
    return reads;
  }

  bool needs(const std::vector<NodeId>& nodes, const std::vector<NodeId>& others) const {
    bool found = false;
    for (NodeId node : nodes)
      for_each_operand(graph_.nodes[node], [&](ValueId operand) {
        found = found || std::binary_search(others.begin(), others.end(), producer(operand));
      });
    return found;
  }

  int64_t elements(NodeId node) const {
    int64_t most = 0;
    for (ValueId result : graph_.nodes[node].results)
      if (result != kNoValue) most = std::max(most, graph_.type(result).elements());
    return most;
  }

  // What the folds read.
  void find_before() {
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node)
      if (folds_.contains(*node) || before_.contains(*node))
        for_each_operand(graph_.nodes[*node], [&](ValueId operand) {
          if (const NodeId from = producer(operand); from != kNoNode) before_.insert(from);
        });
  }

  // Folds, what is as small and made of their results alone, and what only that reads.
  void find_statistics() {
    int64_t largest = 0;
    for (NodeId node : folds_) largest = std::max(largest, elements(node));
    const auto is_small = [&](NodeId node) { return !before_.contains(node) && elements(node) <= largest; };
    const auto follows = [&](ValueId operand) {
      const NodeId from = producer(operand);
      return from == kNoNode || statistics_.contains(from) || !follow_.contains(from);
    };
    for (NodeId node : nodes_) {
      bool small = folds_.contains(node) || (follow_.contains(node) && is_small(node));
      for_each_operand(graph_.nodes[node],
                       [&](ValueId operand) { small = small && (folds_.contains(node) || follows(operand)); });
      if (small) statistics_.insert(node);
    }
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (statistics_.contains(*node) || follow_.contains(*node) || !is_small(*node)) continue;
      bool only = false;
      for (ValueId result : graph_.nodes[*node].results)
        if (result != kNoValue)
          only = !facts_.escapes[result] && std::all_of(facts_.readers[result].begin(), facts_.readers[result].end(),
                                                        [&](NodeId reader) { return statistics_.contains(reader); });
      if (only) statistics_.insert(*node);
    }
  }

  const GraphFacts& facts_;
  const Graph& graph_;
  const std::vector<NodeId> nodes_;
  const ValueId tensor_;
  std::set<NodeId> folds_, follow_, before_, statistics_;
};

std::vector<NodeId> united(std::vector<NodeId> left, const std::vector<NodeId>& right) {
  std::vector<NodeId> both;
  std::set_union(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(both));
  return both;
}

}  // namespace

std::optional<StatisticsApart> statistics_apart(const GraphFacts& facts, std::span<const NodeId> nodes) {
  auto apart = Division(facts, nodes, kNoValue).run();
  return apart && !apart->after.empty() ? apart : std::nullopt;
}

std::optional<StatisticsApart> statistics_of(const GraphFacts& facts, std::span<const NodeId> nodes, ValueId tensor) {
  return Division(facts, nodes, tensor).run();
}

std::optional<Schedule> with_statistics_apart(const GraphFacts& facts, const Schedule& schedule, size_t group,
                                              const DeviceDescription& device) {
  const auto apart = statistics_apart(facts, schedule.groups[group].nodes);
  if (!apart) return std::nullopt;
  Schedule made = schedule;
  const auto place = made.groups.begin() + static_cast<std::ptrdiff_t>(group);
  place->nodes = united(apart->before, apart->statistics);
  made.groups.insert(place + 1, GroupSchedule{united(apart->before, apart->after), "", {}});
  const auto outputs = stored_values(facts, nodes_of(made));
  for (size_t at : {group, group + 1}) {
    const auto lowered = lower_group(facts, made.groups[at].nodes, outputs[at]);
    const Scheduler* scheduler = lowered ? scheduler_for(*lowered, device) : nullptr;
    const bool fits = scheduler && (scheduler->name == kPointwise) == (at != group);
    if (!fits) return std::nullopt;
    made.groups[at].scheduler = scheduler->name;
    made.groups[at].parameters = scheduler->defaults(*lowered, device);
  }
  return made;
}

}  // namespace kw::plan
