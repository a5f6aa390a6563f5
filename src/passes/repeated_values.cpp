#include "passes/repeated_values.hpp"

#include <map>
#include <set>

namespace kw {

namespace {

bool contains(const std::vector<NodeId>& nodes, NodeId node) {
  return std::binary_search(nodes.begin(), nodes.end(), node);
}

class Copies {
 public:
  explicit Copies(Grouping& all) : all_(all) {}

  std::vector<std::vector<NodeId>> run() {
    recompute_cheap_values();
    recompute_spread_values();
    std::vector<std::vector<NodeId>> nodes;
    for (size_t group = 0; group < all_.groups.size(); ++group) nodes.push_back(with_extra(static_cast<int>(group)));
    return nodes;
  }

 private:
  // A value that few cheap operations make from one tensor is computed again by each reader, when that spares storing
  // it.
  void recompute_cheap_values() {
    extra_.resize(all_.groups.size());
    for (size_t group = 0; group < all_.groups.size(); ++group) {
      if (!all_.groups[group].fusable || all_.groups[group].nodes.empty() || all_.groups[group].nodes.size() > 8)
        continue;
      recompute_in_readers(static_cast<int>(group));
    }
  }

  void recompute_in_readers(int group) {
    const std::vector<NodeId> nodes = with_extra(group);
    int weight = 0;
    std::set<ValueId> inputs;
    int64_t input_bytes = 0, output_bytes = 0;
    for (NodeId node : nodes) {
      if (all_.facts.kinds[node] == plan::NodeKind::kReduce || all_.facts.kinds[node] == plan::NodeKind::kScan) return;
      weight += plan::arithmetic_weight(all_.graph.nodes[node]);
      for_each_operand(all_.graph.nodes[node], [&](ValueId operand) {
        const ValueId root = all_.facts.roots[operand];
        const NodeId producer = all_.graph.values[root].producer;
        if ((producer == kNoNode || !contains(nodes, producer)) && inputs.insert(root).second)
          input_bytes += all_.graph.type(root).bytes();
      });
    }
    std::set<int> readers;
    bool must_store = weight > 16;
    for (NodeId node : all_.groups[group].nodes)
      for (ValueId result : all_.graph.nodes[node].results) {
        if (result == kNoValue) continue;
        bool read = false;
        for (NodeId reader : all_.facts.readers[result])
          if (all_.group_of[reader] != group) {
            readers.insert(all_.group_of[reader]);
            read = true;
          }
        if (read) output_bytes += all_.graph.type(result).bytes();
        must_store |= all_.facts.escapes[result];
      }
    const auto count = static_cast<int64_t>(readers.size());
    if (must_store || readers.empty() || count > 4) return;
    if (count * input_bytes > input_bytes + (1 + count) * output_bytes) return;
    std::map<int, std::vector<NodeId>> merged;
    for (int reader : readers) {
      if (!all_.groups[reader].fusable || all_.groups[reader].nodes.empty()) return;
      if (all_.slides(all_.groups[reader]) &&
          weight * (all_.groups[reader].elements / all_.groups[group].elements) > kMostInlinedWeight)
        return;
      std::vector<NodeId> all = with_extra(reader);
      std::vector<NodeId> both;
      std::set_union(all.begin(), all.end(), nodes.begin(), nodes.end(), std::back_inserter(both));
      if (static_cast<int>(both.size()) > kMostGroupedNodes || !analyse_with_copies(both, reader)) return;
      merged[reader] = std::move(both);
    }
    for (auto& [reader, both] : merged) extra_[reader] = std::move(both);
    all_.groups[group].nodes.clear();
  }

  // What another group makes of little by broadcasting is computed again by each of its readers.
  void recompute_spread_values() {
    for (int group = 0; group < static_cast<int>(all_.groups.size()); ++group) {
      if (!all_.groups[group].fusable || all_.groups[group].nodes.empty() || all_.slides(all_.groups[group])) continue;
      const std::vector<NodeId> nodes = with_extra(group);
      std::set<NodeId> copies;
      for (NodeId node : nodes) add_spread_operands(node, nodes, all_.groups[group].elements, copies);
      std::vector<NodeId> both;
      std::set_union(nodes.begin(), nodes.end(), copies.begin(), copies.end(), std::back_inserter(both));
      if (!copies.empty() && static_cast<int>(both.size()) <= kMostGroupedNodes && analyse_with_copies(both, group))
        extra_[group] = std::move(both);
    }
  }

  // And what they are made of, as far as that is spread as well.
  void add_spread_operands(NodeId node, const std::vector<NodeId>& nodes, int64_t elements,
                           std::set<NodeId>& copies) const {
    for_each_operand(all_.graph.nodes[node], [&](ValueId operand) {
      const ValueId root = all_.facts.roots[operand];
      const NodeId producer = all_.graph.values[root].producer;
      if (!all_.is_spread(root) || contains(nodes, producer) || copies.contains(producer)) return;
      // A comparison costs no more than the load; more arithmetic must not be done again and again.
      if (!contains(nodes, node) || all_.spread_weight[producer] <= 4 ||
          elements <= 2 * all_.graph.type(root).elements()) {
        copies.insert(producer);
        add_spread_operands(producer, nodes, elements, copies);
      }
    });
  }

  std::vector<NodeId> with_extra(int group) const {
    return extra_[group].empty() ? all_.groups[group].nodes : extra_[group];
  }

  // Copies store nothing: every reader of theirs has its own.
  bool analyse_with_copies(const std::vector<NodeId>& nodes, int reader) const {
    const auto outputs = plan::outputs_of(all_.facts, all_.groups[reader].nodes);
    return plan::analyse(all_.facts, nodes, &outputs).has_value();
  }

  Grouping& all_;
  std::vector<std::vector<NodeId>> extra_;  // nodes of a group with those it computes again
};

}  // namespace

std::vector<std::vector<NodeId>> with_repeated_values(Grouping& groups) { return Copies(groups).run(); }

}  // namespace kw
