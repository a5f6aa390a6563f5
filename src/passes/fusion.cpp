#include "passes/fusion.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>

#include "ir/op_registry.hpp"
#include "plan/bags.hpp"
#include "plan/domain.hpp"
#include "plan/traffic.hpp"
#include "plan/windows.hpp"

namespace kw {

namespace {

using plan::Domain;
using plan::GraphFacts;
using plan::kLaunchBytes;

struct Group {
  std::vector<NodeId> nodes;  // ascending; empty once merged into another
  int64_t elements = 1;       // of the domain
  int level = 0;              // greater than that of every group it reads from
  bool fusable = false;
};

constexpr int kMostNodes = 96;    // of a group
constexpr int kMostTensors = 24;  // read or written by a group
// Arithmetic repeated for every element when a small producer joins a larger consumer.
constexpr int kMostInlinedWeight = 48;
constexpr double kSmallBytes = 1 << 18;      // a kernel that moves less is hardly more than its launch
constexpr int kSpreadWeight = 16;            // the most arithmetic of a value that broadcasting makes
constexpr double kBytesPerOperation = 0.15;  // moved in the time of one addition, on GPUs and CPUs alike

bool contains(const std::vector<NodeId>& nodes, NodeId node) {
  return std::binary_search(nodes.begin(), nodes.end(), node);
}

class Fusion {
 public:
  Fusion(Graph& graph, const GraphForms& forms) : graph_(graph), facts_(graph, forms) {}

  void run() {
    find_order_of_random_nodes();
    find_spread_nodes();
    group_of_.assign(graph_.nodes.size(), -1);
    for (NodeId node = 0; node < static_cast<NodeId>(graph_.nodes.size()); ++node)
      if (facts_.kinds[node] != plan::NodeKind::kView) place(node);
    regroup();
    recompute_cheap_values();
    recompute_spread_values();
    emit();
  }

 private:
  void find_order_of_random_nodes() {
    previous_random_.assign(graph_.nodes.size(), kNoNode);
    next_random_.assign(graph_.nodes.size(), kNoNode);
    NodeId previous = kNoNode;
    for (NodeId node = 0; node < static_cast<NodeId>(graph_.nodes.size()); ++node)
      if (!is_pure(graph_.nodes[node]) && facts_.kinds[node] == plan::NodeKind::kExtern) {
        previous_random_[node] = previous;
        if (previous != kNoNode) next_random_[previous] = node;
        previous = node;
      }
  }

  // Nodes whose results broadcasting makes of much less, with little arithmetic (a mask of positions, a comparison of
  // each row's label with all classes): wherever they are wanted they are computed, like a view, and never worth a
  // place in a group of their own.
  void find_spread_nodes() {
    constexpr int64_t kSpread = 8;
    const auto count = static_cast<NodeId>(graph_.nodes.size());
    spread_weight_.assign(count, -1);
    std::vector<int64_t> sources(count, 0);  // elements that a spread node is made of
    for (NodeId node = 0; node < count; ++node) {
      if (!is_light(node) || graph_.nodes[node].results.size() != 1 || plan::looks_up(graph_.nodes[node])) continue;
      const ValueId result = graph_.nodes[node].results[0];
      if (result == kNoValue || facts_.escapes[result]) continue;
      int weight = plan::arithmetic_weight(graph_.nodes[node]);
      for_each_operand(graph_.nodes[node], [&](ValueId operand) {
        const ValueId root = facts_.roots[operand];
        const NodeId producer = graph_.values[root].producer;
        const bool spread = producer != kNoNode && spread_weight_[producer] >= 0;
        sources[node] += spread ? sources[producer] : graph_.type(root).elements();
        weight += spread ? spread_weight_[producer] : 0;
      });
      if (weight <= kSpreadWeight && graph_.type(result).elements() >= kSpread * sources[node])
        spread_weight_[node] = weight;
    }
  }

  bool is_spread(ValueId root) const {
    const NodeId producer = graph_.values[root].producer;
    return producer != kNoNode && spread_weight_[producer] >= 0;
  }

  // Groups that `node` reads from (or must follow).
  template <typename Visit>
  void for_each_source(NodeId node, Visit&& visit) const {
    for_each_operand(graph_.nodes[node], [&](ValueId operand) {
      const NodeId producer = graph_.values[facts_.roots[operand]].producer;
      if (producer != kNoNode) visit(group_of_[producer]);
    });
    if (previous_random_[node] != kNoNode) visit(group_of_[previous_random_[node]]);
  }

  template <typename Visit>
  void for_each_reader(int group, Visit&& visit) const {
    for (NodeId node : groups_[group].nodes) {
      for (ValueId result : graph_.nodes[node].results)
        if (result != kNoValue)
          for (NodeId reader : facts_.readers[result])
            if (group_of_[reader] >= 0 && group_of_[reader] != group) visit(group_of_[reader]);
      if (next_random_[node] != kNoNode && group_of_[next_random_[node]] >= 0 && group_of_[next_random_[node]] != group)
        visit(group_of_[next_random_[node]]);
    }
  }

  int level_below(const std::vector<NodeId>& nodes, int own) const {
    int level = 0;
    for (NodeId node : nodes)
      for_each_source(node, [&](int source) {
        if (source != own) level = std::max(level, groups_[source].level + 1);
      });
    return level;
  }

  void place(NodeId node) {
    const auto own = static_cast<int>(groups_.size());
    group_of_[node] = own;
    groups_.push_back({{node}, 1, 0, false});
    Group& group = groups_.back();
    group.level = level_below(group.nodes, own);
    if (facts_.kinds[node] == plan::NodeKind::kExtern) return;
    const auto domain = plan::analyse(facts_, group.nodes);
    group.fusable = domain.has_value();
    if (!domain) return;  // becomes a library call
    group.elements = domain->parallel_elements() * domain->reduced_elements();
    int current = own;
    for (int candidate : candidates(node)) {
      if (group_of_[node] != current) current = group_of_[node];
      if (candidate != current && !groups_[candidate].nodes.empty()) current = try_merge(current, candidate);
    }
  }

  // Producers first, the largest in front and those of what can be computed anywhere last; then groups that read the
  // same tensors.
  std::vector<int> candidates(NodeId node) const {
    std::vector<int> producers, siblings;
    std::set<int> needed;
    auto add = [&](std::vector<int>& list, int group) {
      if (groups_[group].fusable && std::find(list.begin(), list.end(), group) == list.end()) list.push_back(group);
    };
    for_each_operand(graph_.nodes[node], [&](ValueId operand) {
      const ValueId root = facts_.roots[operand];
      if (const NodeId producer = graph_.values[root].producer; producer != kNoNode) {
        add(producers, group_of_[producer]);
        if (!is_spread(root)) needed.insert(group_of_[producer]);
      }
      if (graph_.type(root).elements() == 1) return;  // shared by what has nothing else in common
      int looked_at = 0;
      const auto& readers = facts_.readers[root];
      const auto here = std::lower_bound(readers.begin(), readers.end(), node);
      for (auto reader = here; reader != readers.begin() && looked_at < 4; ++looked_at)
        if (const int group = group_of_[*--reader]; group != group_of_[node]) add(siblings, group);
    });
    std::stable_sort(producers.begin(), producers.end(),
                     [&](int a, int b) { return groups_[a].elements > groups_[b].elements; });
    std::stable_partition(producers.begin(), producers.end(), [&](int group) { return needed.contains(group); });
    for (int group : siblings)
      if (std::find(producers.begin(), producers.end(), group) == producers.end()) producers.push_back(group);
    return producers;
  }

  // The group that holds `node`'s nodes afterwards.
  int try_merge(int left, int right) {
    Group &a = groups_[left], &b = groups_[right];
    if (static_cast<int>(a.nodes.size() + b.nodes.size()) > kMostNodes) return left;
    if (reaches(left, right) || reaches(right, left)) return left;
    std::vector<NodeId> nodes;
    std::merge(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), std::back_inserter(nodes));
    const auto domain = plan::analyse(facts_, nodes);
    if (!domain || !worthwhile(*domain, nodes, a, b)) return left;
    const int kept = std::min(left, right), gone = std::max(left, right);
    for (NodeId node : groups_[gone].nodes) group_of_[node] = kept;
    groups_[gone].nodes.clear();
    groups_[kept].nodes = std::move(nodes);
    groups_[kept].elements = domain->parallel_elements() * domain->reduced_elements();
    groups_[kept].level = std::max(groups_[kept].level, groups_[gone].level);
    raise(kept, level_below(groups_[kept].nodes, kept));
    return kept;
  }

  // Is there a way from `from` to `to` through a third group?
  bool reaches(int from, int to) {
    const int limit = groups_[to].level;
    std::vector<int> stack;
    std::set<int> seen{from};
    bool found = false;
    for_each_reader(from, [&](int reader) {
      if (reader != to && groups_[reader].level < limit && seen.insert(reader).second) stack.push_back(reader);
    });
    while (!stack.empty() && !found) {
      const int group = stack.back();
      stack.pop_back();
      if (seen.size() > 512) return true;  // too far to look: as good as reachable
      for_each_reader(group, [&](int reader) {
        if (reader == to) found = true;
        else if (groups_[reader].level < limit && seen.insert(reader).second) stack.push_back(reader);
      });
    }
    return found;
  }

  void raise(int group, int level) {
    groups_[group].level = std::max(groups_[group].level, level);
    std::vector<int> stack{group};
    while (!stack.empty()) {
      const int top = stack.back();
      stack.pop_back();
      for_each_reader(top, [&](int reader) {
        if (groups_[reader].level > groups_[top].level) return;
        groups_[reader].level = groups_[top].level + 1;
        stack.push_back(reader);
      });
    }
  }

  bool worthwhile(const Domain& domain, const std::vector<NodeId>& nodes, const Group& a, const Group& b) const {
    std::set<ValueId> tensors(domain.outputs.begin(), domain.outputs.end());
    for (NodeId node : nodes)
      for_each_operand(graph_.nodes[node], [&](ValueId operand) {
        const ValueId root = facts_.roots[operand];
        const NodeId producer = graph_.values[root].producer;
        if (producer == kNoNode || !contains(nodes, producer)) tensors.insert(root);
      });
    if (static_cast<int>(tensors.size()) > kMostTensors) return false;
    // A smaller pointwise group is computed again for each element of the larger domain.
    const int64_t elements = domain.parallel_elements() * domain.reduced_elements();
    for (const Group* part : {&a, &b}) {
      if (part->elements * 2 > elements) continue;
      const int weight = weight_of(part->nodes);
      const bool reduces = std::any_of(part->nodes.begin(), part->nodes.end(), [&](NodeId node) {
        return facts_.kinds[node] == plan::NodeKind::kReduce || facts_.kinds[node] == plan::NodeKind::kScan;
      });
      // A row that several share is folded again by each of their programs.
      if (reduces && part->elements * 16 > elements) return false;
      const Group& other = part == &a ? b : a;
      if (!reduces && slides(other) && feeds(part->nodes, other.nodes)) {
        if (weight * std::max<int64_t>(1, elements / part->elements) > kMostInlinedWeight) return false;
        continue;
      }
      const bool after_reduction = domain.has_reduction() && part->elements <= domain.parallel_elements();
      if (!reduces && !after_reduction &&
          (weight > kMostInlinedWeight || costs_more_than_stored(*part, other, nodes, elements)))
        return false;
    }
    return true;
  }

  int weight_of(const std::vector<NodeId>& nodes) const {
    int weight = 0;
    for (NodeId node : nodes) weight += plan::arithmetic_weight(graph_.nodes[node]);
    return weight;
  }

  // Arithmetic is free as long as memory takes longer. A cosine for each of 128 columns where one a row would do made a
  // kernel that only writes 1.37 times as slow.
  bool costs_more_than_stored(const Group& part, const Group& other, const std::vector<NodeId>& both,
                              int64_t elements) const {
    const double again = kBytesPerOperation * static_cast<double>(elements) * weight_of(part.nodes);
    double stored = kLaunchBytes;
    for (ValueId output : plan::outputs_of(facts_, part.nodes))
      stored += 2.0 * static_cast<double>(graph_.type(output).bytes());
    if (again <= stored) return false;
    const double arithmetic = again + kBytesPerOperation * static_cast<double>(other.elements) * weight_of(other.nodes);
    return arithmetic > plan::bytes_moved(facts_, both, plan::outputs_of(facts_, both));
  }

  // --- A search over groupings, by what groups move ---

  double traffic(const std::vector<NodeId>& nodes) const {
    return nodes.empty() ? 0.0 : plan::bytes_moved(facts_, nodes, plan::outputs_of(facts_, nodes)) + kLaunchBytes;
  }

  // Where a node was placed when those after it were not known need not be its best place. Groups give nodes to those
  // that read from them or that they read from, and join others, as long as that lowers the traffic.
  void regroup() {
    attempts_left_ = 8 * static_cast<int>(groups_.size()) + 64;
    bool changed = true;
    for (int round = 0; changed && round < 3; ++round) {
      changed = false;
      for (int group = 0; group < static_cast<int>(groups_.size()); ++group) {
        if (!groups_[group].fusable || groups_[group].nodes.empty()) continue;
        for (int other : neighbours(group)) {
          if (groups_[group].nodes.empty()) break;
          if (!groups_[other].nodes.empty()) changed |= improve(group, other);
        }
      }
    }
    join_small_groups();
  }

  // Kernels that are hardly more than their launch, over equally many elements: the counters of a model's batch norms.
  void join_small_groups() {
    std::map<int64_t, int> open;
    for (int group = 0; group < static_cast<int>(groups_.size()); ++group) {
      if (!groups_[group].fusable || groups_[group].nodes.empty() ||
          traffic(groups_[group].nodes) >= kLaunchBytes + kSmallBytes)
        continue;
      const auto [place, added] = open.emplace(groups_[group].elements, group);
      if (!added && try_merge(place->second, group) == place->second && groups_[group].nodes.empty()) continue;
      place->second = group;
    }
  }

  // Later groups that read from this one or read what it reads.
  std::vector<int> neighbours(int group) const {
    std::set<int> readers;
    for_each_reader(group, [&](int reader) { readers.insert(reader); });
    std::vector<int> found(readers.begin(), readers.end());
    const auto add = [&](int other) {
      if (other != group && found.size() < 16 && std::find(found.begin(), found.end(), other) == found.end())
        found.push_back(other);
    };
    for (NodeId node : groups_[group].nodes)
      for_each_operand(graph_.nodes[node], [&](ValueId operand) {
        const ValueId root = facts_.roots[operand];
        if (graph_.type(root).elements() == 1) return;
        const auto& all = facts_.readers[root];
        int found_here = 0, looked_at = 0;
        for (auto reader = std::upper_bound(all.begin(), all.end(), node);
             reader != all.end() && found_here < 4 && looked_at < 64; ++reader, ++looked_at)
          if (groups_[group_of_[*reader]].fusable) {
            add(group_of_[*reader]);
            ++found_here;
          }
      });
    std::erase_if(found, [&](int other) { return !groups_[other].fusable; });
    return found;
  }

  bool improve(int group, int other) {
    if (attempts_left_ <= 0 || !tried_.insert({groups_[group].nodes, groups_[other].nodes}).second) return false;
    --attempts_left_;
    const double apart = traffic(groups_[group].nodes) + traffic(groups_[other].nodes);
    std::vector<NodeId> both;
    std::set_union(groups_[group].nodes.begin(), groups_[group].nodes.end(), groups_[other].nodes.begin(),
                   groups_[other].nodes.end(), std::back_inserter(both));
    if (traffic(both) < apart) {
      const int kept = try_merge(std::min(group, other), std::max(group, other));
      if (groups_[kept == group ? other : group].nodes.empty()) return true;
    }
    if (groups_[other].level <= groups_[group].level) return false;
    return give(group, other, last_nodes_for(group, other), true) ||
           give(other, group, first_nodes_after(group, other), false);
  }

  bool is_light(NodeId node) const {
    return facts_.kinds[node] == plan::NodeKind::kPointwise || facts_.kinds[node] == plan::NodeKind::kFactory;
  }

  // Nodes of `group` whose results go to `reader` alone, or to one another.
  std::vector<NodeId> last_nodes_for(int group, int reader) const {
    std::set<NodeId> found;
    const auto& nodes = groups_[group].nodes;
    for (size_t at = nodes.size(); at-- > 0;) {
      bool good = is_light(nodes[at]);
      for (ValueId result : graph_.nodes[nodes[at]].results) {
        if (result == kNoValue || !good) continue;
        good = !facts_.escapes[result];
        for (NodeId one : facts_.readers[result]) good = good && (group_of_[one] == reader || found.contains(one));
      }
      if (good) found.insert(nodes[at]);
    }
    return {found.begin(), found.end()};
  }

  // Nodes of `group` that need nothing but inputs, what `source` makes, and one another.
  std::vector<NodeId> first_nodes_after(int source, int group) const {
    std::set<NodeId> found;
    for (NodeId node : groups_[group].nodes) {
      bool good = is_light(node);
      for_each_operand(graph_.nodes[node], [&](ValueId operand) {
        const NodeId producer = graph_.values[facts_.roots[operand]].producer;
        good = good && (producer == kNoNode || group_of_[producer] == source || found.contains(producer));
      });
      if (good) found.insert(node);
    }
    return {found.begin(), found.end()};
  }

  // Hands those of `nodes` over that lower the traffic most: the last of them, or the first.
  bool give(int from, int to, const std::vector<NodeId>& nodes, bool last) {
    const double before = traffic(groups_[from].nodes) + traffic(groups_[to].nodes);
    struct Choice {
      double bytes;
      std::vector<NodeId> given, left, taken;
    };
    std::vector<Choice> choices;
    for (size_t count = 1; count <= std::min<size_t>(nodes.size(), 16); ++count) {
      Choice one;
      if (last) one.given.assign(nodes.end() - static_cast<std::ptrdiff_t>(count), nodes.end());
      else one.given.assign(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(count));
      std::set_difference(groups_[from].nodes.begin(), groups_[from].nodes.end(), one.given.begin(), one.given.end(),
                          std::back_inserter(one.left));
      std::merge(groups_[to].nodes.begin(), groups_[to].nodes.end(), one.given.begin(), one.given.end(),
                 std::back_inserter(one.taken));
      if (one.left.empty() || static_cast<int>(one.taken.size()) > kMostNodes) break;
      one.bytes = traffic(one.left) + traffic(one.taken);
      if (one.bytes < 0.99 * before) choices.push_back(std::move(one));
    }
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.bytes < b.bytes; });
    if (choices.size() > 3) choices.resize(3);
    for (Choice& one : choices) {
      const auto left = plan::analyse(facts_, one.left), taken = plan::analyse(facts_, one.taken);
      if (!left || !taken) continue;
      Group given{one.given, 1, 0, true};
      for (NodeId node : one.given)
        for (ValueId result : graph_.nodes[node].results)
          if (result != kNoValue) given.elements = std::max(given.elements, graph_.type(result).elements());
      if (!worthwhile(*taken, one.taken, given, groups_[to])) continue;
      for (NodeId node : one.given) group_of_[node] = to;
      groups_[from].nodes = std::move(one.left);
      groups_[from].elements = left->parallel_elements() * left->reduced_elements();
      groups_[to].nodes = std::move(one.taken);
      groups_[to].elements = taken->parallel_elements() * taken->reduced_elements();
      for (int changed : {from, to}) raise(changed, level_below(groups_[changed].nodes, changed));
      return true;
    }
    return false;
  }

  // Windows that overlap, and bags that name a row more than once, compute what they read again and again.
  bool slides(const Group& group) const {
    return std::any_of(group.nodes.begin(), group.nodes.end(), [&](NodeId node) {
      if (facts_.kinds[node] != plan::NodeKind::kReduce) return false;
      const auto window = plan::window_of(graph_, graph_.nodes[node]);
      return (window && !window->covers_input()) || plan::bags_of(graph_, graph_.nodes[node]);
    });
  }

  bool feeds(const std::vector<NodeId>& producers, const std::vector<NodeId>& readers) const {
    bool found = false;
    for (NodeId reader : readers)
      for_each_operand(graph_.nodes[reader], [&](ValueId operand) {
        const NodeId producer = graph_.values[facts_.roots[operand]].producer;
        found = found || (producer != kNoNode && contains(producers, producer));
      });
    return found;
  }

  // A value that few cheap operations make from one tensor is computed again by each reader, when that spares storing
  // it.
  void recompute_cheap_values() {
    extra_.resize(groups_.size());
    for (size_t group = 0; group < groups_.size(); ++group) {
      if (!groups_[group].fusable || groups_[group].nodes.empty() || groups_[group].nodes.size() > 8) continue;
      recompute_in_readers(static_cast<int>(group));
    }
  }

  void recompute_in_readers(int group) {
    const std::vector<NodeId> nodes = with_extra(group);
    int weight = 0;
    std::set<ValueId> inputs;
    int64_t input_bytes = 0, output_bytes = 0;
    for (NodeId node : nodes) {
      if (facts_.kinds[node] == plan::NodeKind::kReduce || facts_.kinds[node] == plan::NodeKind::kScan) return;
      weight += plan::arithmetic_weight(graph_.nodes[node]);
      for_each_operand(graph_.nodes[node], [&](ValueId operand) {
        const ValueId root = facts_.roots[operand];
        const NodeId producer = graph_.values[root].producer;
        if ((producer == kNoNode || !contains(nodes, producer)) && inputs.insert(root).second)
          input_bytes += graph_.type(root).bytes();
      });
    }
    std::set<int> readers;
    bool must_store = weight > 16;
    for (NodeId node : groups_[group].nodes)
      for (ValueId result : graph_.nodes[node].results) {
        if (result == kNoValue) continue;
        bool read = false;
        for (NodeId reader : facts_.readers[result])
          if (group_of_[reader] != group) {
            readers.insert(group_of_[reader]);
            read = true;
          }
        if (read) output_bytes += graph_.type(result).bytes();
        must_store |= facts_.escapes[result];
      }
    const auto count = static_cast<int64_t>(readers.size());
    if (must_store || readers.empty() || count > 4) return;
    if (count * input_bytes > input_bytes + (1 + count) * output_bytes) return;
    std::map<int, std::vector<NodeId>> merged;
    for (int reader : readers) {
      if (!groups_[reader].fusable || groups_[reader].nodes.empty()) return;
      if (slides(groups_[reader]) && weight * (groups_[reader].elements / groups_[group].elements) > kMostInlinedWeight)
        return;
      std::vector<NodeId> all = with_extra(reader);
      std::vector<NodeId> both;
      std::set_union(all.begin(), all.end(), nodes.begin(), nodes.end(), std::back_inserter(both));
      if (static_cast<int>(both.size()) > kMostNodes || !analyse_with_copies(both, reader)) return;
      merged[reader] = std::move(both);
    }
    for (auto& [reader, both] : merged) extra_[reader] = std::move(both);
    groups_[group].nodes.clear();
  }

  // What another group makes of little by broadcasting is computed again by each of its readers.
  void recompute_spread_values() {
    for (int group = 0; group < static_cast<int>(groups_.size()); ++group) {
      if (!groups_[group].fusable || groups_[group].nodes.empty() || slides(groups_[group])) continue;
      const std::vector<NodeId> nodes = with_extra(group);
      std::set<NodeId> copies;
      for (NodeId node : nodes) add_spread_operands(node, nodes, groups_[group].elements, copies);
      std::vector<NodeId> both;
      std::set_union(nodes.begin(), nodes.end(), copies.begin(), copies.end(), std::back_inserter(both));
      if (!copies.empty() && static_cast<int>(both.size()) <= kMostNodes && analyse_with_copies(both, group))
        extra_[group] = std::move(both);
    }
  }

  // And what they are made of, as far as that is spread as well.
  void add_spread_operands(NodeId node, const std::vector<NodeId>& nodes, int64_t elements,
                           std::set<NodeId>& copies) const {
    for_each_operand(graph_.nodes[node], [&](ValueId operand) {
      const ValueId root = facts_.roots[operand];
      const NodeId producer = graph_.values[root].producer;
      if (!is_spread(root) || contains(nodes, producer) || copies.contains(producer)) return;
      // A comparison costs no more than the load; more arithmetic must not be done again and again.
      if (!contains(nodes, node) || spread_weight_[producer] <= 4 || elements <= 2 * graph_.type(root).elements()) {
        copies.insert(producer);
        add_spread_operands(producer, nodes, elements, copies);
      }
    });
  }

  std::vector<NodeId> with_extra(int group) const {
    return extra_[group].empty() ? groups_[group].nodes : extra_[group];
  }

  // Copies store nothing: every reader of theirs has its own.
  bool analyse_with_copies(const std::vector<NodeId>& nodes, int reader) const {
    const auto outputs = plan::outputs_of(facts_, groups_[reader].nodes);
    return plan::analyse(facts_, nodes, &outputs).has_value();
  }

  void emit() {
    // Kahn's algorithm, smallest node first: as close to the captured order as the groups allow.
    std::vector<std::vector<NodeId>> nodes_of(groups_.size());
    for (size_t group = 0; group < groups_.size(); ++group) nodes_of[group] = with_extra(static_cast<int>(group));
    std::vector<int> missing(groups_.size(), 0);
    std::vector<std::vector<int>> readers(groups_.size());
    for (size_t group = 0; group < groups_.size(); ++group) {
      std::set<int> sources;
      for (NodeId node : nodes_of[group])
        for_each_source(node, [&](int source) {
          if (source != static_cast<int>(group) && !groups_[source].nodes.empty()) sources.insert(source);
        });
      missing[group] = static_cast<int>(sources.size());
      for (int source : sources) readers[source].push_back(static_cast<int>(group));
    }
    using Entry = std::pair<NodeId, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    for (size_t group = 0; group < groups_.size(); ++group)
      if (!nodes_of[group].empty() && missing[group] == 0)
        ready.push({groups_[group].nodes.back(), static_cast<int>(group)});
    graph_.groups.clear();
    while (!ready.empty()) {
      const int group = ready.top().second;
      ready.pop();
      graph_.groups.push_back(nodes_of[group]);
      for (int reader : readers[group])
        if (--missing[reader] == 0) ready.push({groups_[reader].nodes.back(), reader});
    }
  }

  Graph& graph_;
  GraphFacts facts_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;
  std::vector<NodeId> previous_random_, next_random_;
  std::vector<int> spread_weight_;  // per node: the arithmetic of a spread node's element; −1: it is none
  std::set<std::pair<std::vector<NodeId>, std::vector<NodeId>>> tried_;  // groups that were compared as they were
  int attempts_left_ = 0;
  std::vector<std::vector<NodeId>> extra_;  // nodes of a group with those it computes again
};

}  // namespace

RewriteCounts fusion(Graph& graph, const GraphForms& forms) {
  Fusion(graph, forms).run();
  return {};
}

}  // namespace kw
