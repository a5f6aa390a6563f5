#include "passes/grouping.hpp"

#include <set>

#include "ir/op_registry.hpp"
#include "plan/bags.hpp"
#include "plan/traffic.hpp"
#include "plan/windows.hpp"

namespace kw {

using plan::Domain;
using plan::kLaunchBytes;

namespace {

constexpr int kMostTensors = 24;             // read or written by a group
constexpr int kSpreadWeight = 16;            // the most arithmetic of a value that broadcasting makes
constexpr double kBytesPerOperation = 0.15;  // moved in the time of one addition, on GPUs and CPUs alike

bool contains(const std::vector<NodeId>& nodes, NodeId node) {
  return std::binary_search(nodes.begin(), nodes.end(), node);
}

}  // namespace

Grouping::Grouping(const Graph& of, const GraphForms& forms)
    : graph(of), facts(of, forms), group_of(of.nodes.size(), -1) {
  find_order_of_random_nodes();
  find_spread_nodes();
}

void Grouping::find_order_of_random_nodes() {
  previous_random_.assign(graph.nodes.size(), kNoNode);
  next_random_.assign(graph.nodes.size(), kNoNode);
  NodeId previous = kNoNode;
  for (NodeId node = 0; node < static_cast<NodeId>(graph.nodes.size()); ++node)
    if (!is_pure(graph.nodes[node]) && facts.kinds[node] == plan::NodeKind::kExtern) {
      previous_random_[node] = previous;
      if (previous != kNoNode) next_random_[previous] = node;
      previous = node;
    }
}

void Grouping::find_spread_nodes() {
  constexpr int64_t kSpread = 8;
  const auto count = static_cast<NodeId>(graph.nodes.size());
  spread_weight.assign(count, -1);
  std::vector<int64_t> sources(count, 0);  // elements that a spread node is made of
  for (NodeId node = 0; node < count; ++node) {
    if (!is_light(node) || graph.nodes[node].results.size() != 1 || plan::looks_up(graph.nodes[node])) continue;
    const ValueId result = graph.nodes[node].results[0];
    if (result == kNoValue || facts.escapes[result]) continue;
    int weight = plan::arithmetic_weight(graph.nodes[node]);
    for_each_operand(graph.nodes[node], [&](ValueId operand) {
      const ValueId root = facts.roots[operand];
      const NodeId producer = graph.values[root].producer;
      const bool spread = producer != kNoNode && spread_weight[producer] >= 0;
      sources[node] += spread ? sources[producer] : graph.type(root).elements();
      weight += spread ? spread_weight[producer] : 0;
    });
    if (weight <= kSpreadWeight && graph.type(result).elements() >= kSpread * sources[node])
      spread_weight[node] = weight;
  }
}

bool Grouping::is_spread(ValueId root) const {
  const NodeId producer = graph.values[root].producer;
  return producer != kNoNode && spread_weight[producer] >= 0;
}

bool Grouping::is_light(NodeId node) const {
  return facts.kinds[node] == plan::NodeKind::kPointwise || facts.kinds[node] == plan::NodeKind::kFactory;
}

int Grouping::level_below(const std::vector<NodeId>& nodes, int own) const {
  int level = 0;
  for (NodeId node : nodes)
    for_each_source(node, [&](int source) {
      if (source != own) level = std::max(level, groups[source].level + 1);
    });
  return level;
}

int Grouping::add(NodeId node) {
  const auto own = static_cast<int>(groups.size());
  group_of[node] = own;
  groups.push_back({{node}, 1, 0, false});
  Group& group = groups.back();
  group.level = level_below(group.nodes, own);
  if (facts.kinds[node] == plan::NodeKind::kExtern) return own;
  const auto domain = plan::analyse(facts, group.nodes);
  group.fusable = domain.has_value();  // else it becomes a library call
  if (domain) group.elements = domain->parallel_elements() * domain->reduced_elements();
  return own;
}

int Grouping::try_merge(int left, int right) {
  Group &a = groups[left], &b = groups[right];
  if (static_cast<int>(a.nodes.size() + b.nodes.size()) > kMostGroupedNodes) return left;
  if (reaches(left, right) || reaches(right, left)) return left;
  std::vector<NodeId> nodes;
  std::merge(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), std::back_inserter(nodes));
  const auto domain = plan::analyse(facts, nodes);
  if (!domain || !worthwhile(*domain, nodes, a, b)) return left;
  const int kept = std::min(left, right), gone = std::max(left, right);
  for (NodeId node : groups[gone].nodes) group_of[node] = kept;
  groups[gone].nodes.clear();
  groups[kept].nodes = std::move(nodes);
  groups[kept].elements = domain->parallel_elements() * domain->reduced_elements();
  groups[kept].level = std::max(groups[kept].level, groups[gone].level);
  raise(kept);
  return kept;
}

// Through a third group.
bool Grouping::reaches(int from, int to) const {
  const int limit = groups[to].level;
  std::vector<int> stack;
  std::set<int> seen{from};
  bool found = false;
  for_each_reader(from, [&](int reader) {
    if (reader != to && groups[reader].level < limit && seen.insert(reader).second) stack.push_back(reader);
  });
  while (!stack.empty() && !found) {
    const int group = stack.back();
    stack.pop_back();
    if (seen.size() > 512) return true;  // too far to look: as good as reachable
    for_each_reader(group, [&](int reader) {
      if (reader == to) found = true;
      else if (groups[reader].level < limit && seen.insert(reader).second) stack.push_back(reader);
    });
  }
  return found;
}

void Grouping::raise(int group) { raise(group, level_below(groups[group].nodes, group)); }

void Grouping::raise(int group, int level) {
  groups[group].level = std::max(groups[group].level, level);
  std::vector<int> stack{group};
  while (!stack.empty()) {
    const int top = stack.back();
    stack.pop_back();
    for_each_reader(top, [&](int reader) {
      if (groups[reader].level > groups[top].level) return;
      groups[reader].level = groups[top].level + 1;
      stack.push_back(reader);
    });
  }
}

bool Grouping::worthwhile(const Domain& domain, const std::vector<NodeId>& nodes, const Group& a,
                          const Group& b) const {
  std::set<ValueId> tensors(domain.outputs.begin(), domain.outputs.end());
  for (NodeId node : nodes)
    for_each_operand(graph.nodes[node], [&](ValueId operand) {
      const ValueId root = facts.roots[operand];
      const NodeId producer = graph.values[root].producer;
      if (producer == kNoNode || !contains(nodes, producer)) tensors.insert(root);
    });
  if (static_cast<int>(tensors.size()) > kMostTensors) return false;
  // A smaller pointwise group is computed again for each element of the larger domain.
  const int64_t elements = domain.parallel_elements() * domain.reduced_elements();
  for (const Group* part : {&a, &b}) {
    if (part->elements * 2 > elements) continue;
    const int weight = weight_of(part->nodes);
    const bool reduces = std::any_of(part->nodes.begin(), part->nodes.end(), [&](NodeId node) {
      return facts.kinds[node] == plan::NodeKind::kReduce || facts.kinds[node] == plan::NodeKind::kScan;
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

int Grouping::weight_of(const std::vector<NodeId>& nodes) const {
  int weight = 0;
  for (NodeId node : nodes) weight += plan::arithmetic_weight(graph.nodes[node]);
  return weight;
}

// Arithmetic is free as long as memory takes longer. A cosine for each of 128 columns where one a row would do made a
// kernel that only writes 1.37 times as slow.
bool Grouping::costs_more_than_stored(const Group& part, const Group& other, const std::vector<NodeId>& both,
                                      int64_t elements) const {
  const double again = kBytesPerOperation * static_cast<double>(elements) * weight_of(part.nodes);
  double stored = kLaunchBytes;
  for (ValueId output : plan::outputs_of(facts, part.nodes))
    stored += 2.0 * static_cast<double>(graph.type(output).bytes());
  if (again <= stored) return false;
  const double arithmetic = again + kBytesPerOperation * static_cast<double>(other.elements) * weight_of(other.nodes);
  return arithmetic > plan::bytes_moved(facts, both, plan::outputs_of(facts, both));
}

double Grouping::traffic(const std::vector<NodeId>& nodes) const {
  return nodes.empty() ? 0.0 : plan::bytes_moved(facts, nodes, plan::outputs_of(facts, nodes)) + kLaunchBytes;
}

// Windows that overlap, and bags that name a row more than once, compute what they read again and again.
bool Grouping::slides(const Group& group) const {
  return std::any_of(group.nodes.begin(), group.nodes.end(), [&](NodeId node) {
    if (facts.kinds[node] != plan::NodeKind::kReduce) return false;
    const auto window = plan::window_of(graph, graph.nodes[node]);
    return (window && !window->covers_input()) || plan::bags_of(graph, graph.nodes[node]);
  });
}

bool Grouping::feeds(const std::vector<NodeId>& producers, const std::vector<NodeId>& readers) const {
  bool found = false;
  for (NodeId reader : readers)
    for_each_operand(graph.nodes[reader], [&](ValueId operand) {
      const NodeId producer = graph.values[facts.roots[operand]].producer;
      found = found || (producer != kNoNode && contains(producers, producer));
    });
  return found;
}

}  // namespace kw
