#include "passes/fusion.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>

#include "ir/memory.hpp"
#include "passes/grouping.hpp"
#include "passes/repeated_values.hpp"
#include "plan/traffic.hpp"

namespace kw {

namespace {

using plan::kLaunchBytes;

constexpr double kSmallBytes = 1 << 18;  // a kernel that moves less is hardly more than its launch

class Fusion {
 public:
  Fusion(Graph& graph, const GraphForms& forms) : graph_(graph), all_(graph, forms) {
    const std::set<ValueId> written = written_inputs(graph);
    for (const GraphInput& input : graph.inputs)
      if (input.kind != InputKind::kUser && !written.contains(input.value)) weights_.insert(input.value);
  }

  void run() {
    for (NodeId node = 0; node < static_cast<NodeId>(graph_.nodes.size()); ++node)
      if (all_.facts.kinds[node] != plan::NodeKind::kView) place(node);
    regroup();
    emit(with_repeated_values(all_));
  }

 private:
  void place(NodeId node) {
    int current = all_.add(node);
    if (!all_.groups[current].fusable) return;
    for (int candidate : candidates(node)) {
      if (all_.group_of[node] != current) current = all_.group_of[node];
      if (candidate != current && !all_.groups[candidate].nodes.empty()) current = all_.try_merge(current, candidate);
    }
  }

  // Producers first, the largest in front and those of what can be computed anywhere last; then groups that read the
  // same tensors.
  std::vector<int> candidates(NodeId node) const {
    std::vector<int> producers, siblings;
    std::set<int> needed;
    auto add = [&](std::vector<int>& list, int group) {
      if (all_.groups[group].fusable && std::find(list.begin(), list.end(), group) == list.end()) list.push_back(group);
    };
    for_each_operand(all_.graph.nodes[node], [&](ValueId operand) {
      const ValueId root = all_.facts.roots[operand];
      if (const NodeId producer = all_.graph.values[root].producer; producer != kNoNode) {
        add(producers, all_.group_of[producer]);
        if (!all_.is_spread(root)) needed.insert(all_.group_of[producer]);
      }
      if (all_.graph.type(root).elements() == 1) return;  // shared by what has nothing else in common
      int looked_at = 0;
      const auto& readers = all_.facts.readers[root];
      const auto here = std::lower_bound(readers.begin(), readers.end(), node);
      for (auto reader = here; reader != readers.begin() && looked_at < 4; ++looked_at)
        if (const int group = all_.group_of[*--reader]; group != all_.group_of[node]) add(siblings, group);
    });
    std::stable_sort(producers.begin(), producers.end(),
                     [&](int a, int b) { return all_.groups[a].elements > all_.groups[b].elements; });
    std::stable_partition(producers.begin(), producers.end(), [&](int group) { return needed.contains(group); });
    for (int group : siblings)
      if (std::find(producers.begin(), producers.end(), group) == producers.end()) producers.push_back(group);
    return producers;
  }

  // --- A search over groupings, by what groups move ---

  // Where a node was placed when those after it were not known need not be its best place. Groups give nodes to those
  // that read from them or that they read from, and join others, as long as that lowers the traffic.
  void regroup() {
    attempts_left_ = 8 * static_cast<int>(all_.groups.size()) + 64;
    bool changed = true;
    for (int round = 0; changed && round < 3; ++round) {
      changed = false;
      for (int group = 0; group < static_cast<int>(all_.groups.size()); ++group) {
        if (!all_.groups[group].fusable || all_.groups[group].nodes.empty()) continue;
        for (int other : neighbours(group)) {
          if (all_.groups[group].nodes.empty()) break;
          if (!all_.groups[other].nodes.empty()) changed |= improve(group, other);
        }
      }
    }
    join_small_groups();
  }

  // Does a module in evaluation mode keep what the group makes, as it reads weights alone? Then no call launches it.
  bool is_kept(const std::vector<NodeId>& nodes) const {
    bool reads_weights = false, reads_others = graph_.training;
    for (NodeId node : nodes)
      for_each_operand(graph_.nodes[node], [&](ValueId operand) {
        const ValueId root = all_.facts.roots[operand];
        const NodeId producer = graph_.values[root].producer;
        if (weights_.contains(root)) reads_weights = true;
        else if (producer == kNoNode || !std::binary_search(nodes.begin(), nodes.end(), producer)) reads_others = true;
      });
    if (!reads_weights || reads_others) return false;
    int64_t bytes = 0;
    for (ValueId output : plan::outputs_of(all_.facts, nodes)) {
      if (all_.facts.escapes[output]) return false;
      bytes += graph_.type(output).bytes();
    }
    return bytes >= plan::kWorthKeeping;
  }

  // Kernels that are hardly more than their launch, over equally many elements: the counters of a model's batch norms.
  void join_small_groups() {
    std::map<int64_t, int> open;
    for (int group = 0; group < static_cast<int>(all_.groups.size()); ++group) {
      if (!all_.groups[group].fusable || all_.groups[group].nodes.empty() ||
          all_.traffic(all_.groups[group].nodes) >= kLaunchBytes + kSmallBytes || is_kept(all_.groups[group].nodes))
        continue;
      const auto [place, added] = open.emplace(all_.groups[group].elements, group);
      if (!added && all_.try_merge(place->second, group) == place->second && all_.groups[group].nodes.empty()) continue;
      place->second = group;
    }
  }

  // Later groups that read from this one or read what it reads.
  std::vector<int> neighbours(int group) const {
    std::set<int> readers;
    all_.for_each_reader(group, [&](int reader) { readers.insert(reader); });
    std::vector<int> found(readers.begin(), readers.end());
    const auto add = [&](int other) {
      if (other != group && found.size() < 16 && std::find(found.begin(), found.end(), other) == found.end())
        found.push_back(other);
    };
    for (NodeId node : all_.groups[group].nodes)
      for_each_operand(all_.graph.nodes[node], [&](ValueId operand) {
        const ValueId root = all_.facts.roots[operand];
        if (all_.graph.type(root).elements() == 1) return;
        const auto& all = all_.facts.readers[root];
        int found_here = 0, looked_at = 0;
        for (auto reader = std::upper_bound(all.begin(), all.end(), node);
             reader != all.end() && found_here < 4 && looked_at < 64; ++reader, ++looked_at)
          if (all_.groups[all_.group_of[*reader]].fusable) {
            add(all_.group_of[*reader]);
            ++found_here;
          }
      });
    std::erase_if(found, [&](int other) { return !all_.groups[other].fusable; });
    return found;
  }

  bool improve(int group, int other) {
    if (attempts_left_ <= 0 || !tried_.insert({all_.groups[group].nodes, all_.groups[other].nodes}).second)
      return false;
    --attempts_left_;
    const double apart = all_.traffic(all_.groups[group].nodes) + all_.traffic(all_.groups[other].nodes);
    std::vector<NodeId> both;
    std::set_union(all_.groups[group].nodes.begin(), all_.groups[group].nodes.end(), all_.groups[other].nodes.begin(),
                   all_.groups[other].nodes.end(), std::back_inserter(both));
    if (all_.traffic(both) < apart) {
      const int kept = all_.try_merge(std::min(group, other), std::max(group, other));
      if (all_.groups[kept == group ? other : group].nodes.empty()) return true;
    }
    if (all_.groups[other].level <= all_.groups[group].level) return false;
    return give(group, other, last_nodes_for(group, other), true) ||
           give(other, group, first_nodes_after(group, other), false);
  }

  // Nodes of `group` whose results go to `reader` alone, or to one another.
  std::vector<NodeId> last_nodes_for(int group, int reader) const {
    std::set<NodeId> found;
    const auto& nodes = all_.groups[group].nodes;
    for (size_t at = nodes.size(); at-- > 0;) {
      bool good = all_.is_light(nodes[at]);
      for (ValueId result : all_.graph.nodes[nodes[at]].results) {
        if (result == kNoValue || !good) continue;
        good = !all_.facts.escapes[result];
        for (NodeId one : all_.facts.readers[result])
          good = good && (all_.group_of[one] == reader || found.contains(one));
      }
      if (good) found.insert(nodes[at]);
    }
    return {found.begin(), found.end()};
  }

  // Nodes of `group` that need nothing but inputs, what `source` makes, and one another.
  std::vector<NodeId> first_nodes_after(int source, int group) const {
    std::set<NodeId> found;
    for (NodeId node : all_.groups[group].nodes) {
      bool good = all_.is_light(node);
      for_each_operand(all_.graph.nodes[node], [&](ValueId operand) {
        const NodeId producer = all_.graph.values[all_.facts.roots[operand]].producer;
        good = good && (producer == kNoNode || all_.group_of[producer] == source || found.contains(producer));
      });
      if (good) found.insert(node);
    }
    return {found.begin(), found.end()};
  }

  // Hands those of `nodes` over that lower the traffic most: the last of them, or the first.
  bool give(int from, int to, const std::vector<NodeId>& nodes, bool last) {
    const double before = all_.traffic(all_.groups[from].nodes) + all_.traffic(all_.groups[to].nodes);
    struct Choice {
      double bytes;
      std::vector<NodeId> given, left, taken;
    };
    std::vector<Choice> choices;
    for (size_t count = 1; count <= std::min<size_t>(nodes.size(), 16); ++count) {
      Choice one;
      if (last) one.given.assign(nodes.end() - static_cast<std::ptrdiff_t>(count), nodes.end());
      else one.given.assign(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(count));
      std::set_difference(all_.groups[from].nodes.begin(), all_.groups[from].nodes.end(), one.given.begin(),
                          one.given.end(), std::back_inserter(one.left));
      std::merge(all_.groups[to].nodes.begin(), all_.groups[to].nodes.end(), one.given.begin(), one.given.end(),
                 std::back_inserter(one.taken));
      if (one.left.empty() || static_cast<int>(one.taken.size()) > kMostGroupedNodes) break;
      one.bytes = all_.traffic(one.left) + all_.traffic(one.taken);
      if (one.bytes < 0.99 * before) choices.push_back(std::move(one));
    }
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.bytes < b.bytes; });
    if (choices.size() > 3) choices.resize(3);
    for (Choice& one : choices) {
      const auto left = plan::analyse(all_.facts, one.left), taken = plan::analyse(all_.facts, one.taken);
      if (!left || !taken) continue;
      Group given{one.given, 1, 0, true};
      for (NodeId node : one.given)
        for (ValueId result : all_.graph.nodes[node].results)
          if (result != kNoValue) given.elements = std::max(given.elements, all_.graph.type(result).elements());
      if (!all_.worthwhile(*taken, one.taken, given, all_.groups[to])) continue;
      for (NodeId node : one.given) all_.group_of[node] = to;
      all_.groups[from].nodes = std::move(one.left);
      all_.groups[from].elements = left->parallel_elements() * left->reduced_elements();
      all_.groups[to].nodes = std::move(one.taken);
      all_.groups[to].elements = taken->parallel_elements() * taken->reduced_elements();
      for (int changed : {from, to}) all_.raise(changed);
      return true;
    }
    return false;
  }

  void emit(const std::vector<std::vector<NodeId>>& nodes_of) {
    // Kahn's algorithm, smallest node first: as close to the captured order as the groups allow.
    std::vector<int> missing(all_.groups.size(), 0);
    std::vector<std::vector<int>> readers(all_.groups.size());
    for (size_t group = 0; group < all_.groups.size(); ++group) {
      std::set<int> sources;
      for (NodeId node : nodes_of[group])
        all_.for_each_source(node, [&](int source) {
          if (source != static_cast<int>(group) && !all_.groups[source].nodes.empty()) sources.insert(source);
        });
      missing[group] = static_cast<int>(sources.size());
      for (int source : sources) readers[source].push_back(static_cast<int>(group));
    }
    using Entry = std::pair<NodeId, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    for (size_t group = 0; group < all_.groups.size(); ++group)
      if (!nodes_of[group].empty() && missing[group] == 0)
        ready.push({all_.groups[group].nodes.back(), static_cast<int>(group)});
    graph_.groups.clear();
    while (!ready.empty()) {
      const int group = ready.top().second;
      ready.pop();
      graph_.groups.push_back(nodes_of[group]);
      for (int reader : readers[group])
        if (--missing[reader] == 0) ready.push({all_.groups[reader].nodes.back(), reader});
    }
  }

  Graph& graph_;
  Grouping all_;
  std::set<ValueId> weights_;  // and other tensors of the module's that forward does not change
  std::set<std::pair<std::vector<NodeId>, std::vector<NodeId>>> tried_;  // groups that were compared as they were
  int attempts_left_ = 0;
};

}  // namespace

RewriteCounts fusion(Graph& graph, const GraphForms& forms) {
  Fusion(graph, forms).run();
  return {};
}

}  // namespace kw
