#include "plan/cost.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "ir/op_registry.hpp"
#include "plan/domain.hpp"

namespace kw {

namespace {

// Elements of the storage that a view reads: an expanded axis is read once, a slice only where it reaches.
double bytes_of(const TensorType& type) {
  double elements = 1;
  for (int64_t dim = 0; dim < type.rank(); ++dim)
    if (type.strides[dim] != 0) elements *= static_cast<double>(type.shape[dim]);
  return elements * static_cast<double>(size_of(type.dtype));
}

// Of a table that is looked up in, each result element is taken to read one. No lower bound of the traffic, for an index may come twice: all may be
// the same row.
double most_read(const Graph& graph, const Node& node, ValueId operand) {
  const bool is_table = plan::looks_up(node) && operand == (node.value("self") != kNoValue ? node.value("self") : node.value("weight"));
  if (!is_table) return std::numeric_limits<double>::infinity();
  return static_cast<double>(graph.type(node.results[0]).elements() * size_of(graph.type(operand).dtype));
}

// Adds what `value` reads of its root, at most the whole root.
struct Reads {
  std::map<ValueId, double> bytes;
  void add(const Graph& graph, ValueId root, ValueId value, double most) {
    bytes[root] = std::min(bytes[root] + std::min(bytes_of(graph.type(value)), most), bytes_of(graph.type(root)));
  }
  double total() const {
    double sum = 0;
    for (const auto& [root, one] : bytes) sum += one;
    return sum;
  }
};

}  // namespace

std::vector<Cost> group_costs(const Graph& graph, const Schedule& schedule) {
  const plan::GraphFacts facts(graph);
  std::vector<Cost> costs;
  for (const auto& group : schedule.groups) {
    Cost cost;
    Reads reads;
    const std::set<NodeId> inside(group.nodes.begin(), group.nodes.end());
    for (NodeId node : group.nodes) {
      cost.flops += flops(graph, graph.nodes[node]);
      for_each_operand(graph.nodes[node], [&](ValueId operand) {
        const ValueId root = facts.roots[operand];
        if (!inside.contains(graph.values[root].producer)) reads.add(graph, root, operand, most_read(graph, graph.nodes[node], operand));
      });
    }
    for (ValueId output : plan::outputs_of(facts, group.nodes)) cost.bytes += bytes_of(graph.type(output));
    cost.bytes += reads.total();
    costs.push_back(cost);
  }
  return costs;
}

Cost graph_cost(const Graph& graph) {
  const plan::GraphFacts facts(graph);
  Cost cost;
  Reads reads;
  for (NodeId node = 0; node < static_cast<NodeId>(graph.nodes.size()); ++node) {
    if (facts.classes[node] == plan::OpClass::kView) continue;
    cost.flops += flops(graph, graph.nodes[node]);
    for_each_operand(graph.nodes[node], [&](ValueId operand) {
      const ValueId root = facts.roots[operand];
      if (graph.values[root].producer == kNoNode) reads.add(graph, root, operand, most_read(graph, graph.nodes[node], operand));
    });
  }
  std::set<ValueId> written;
  for (const auto& output : graph.outputs) {
    if (output.value == kNoValue) continue;
    const ValueId root = facts.roots[output.value];
    if (graph.values[root].producer != kNoNode && written.insert(root).second) cost.bytes += bytes_of(graph.type(root));
  }
  cost.bytes += reads.total();
  return cost;
}

double roofline_seconds(const Cost& cost, const DeviceDescription& device) {
  const double memory = device.copy_bytes_per_second > 0 ? cost.bytes / device.copy_bytes_per_second : 0;
  const double arithmetic = device.fp32_flops > 0 ? cost.flops / device.fp32_flops : 0;
  return std::max(memory, arithmetic);
}

}  // namespace kw
