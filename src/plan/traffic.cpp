#include "plan/traffic.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace kw::plan {

namespace {

// Elements of the storage that a view reads: an expanded axis is read once, a slice only where it reaches.
double bytes_of(const TensorType& type) {
  double elements = 1;
  for (int64_t dim = 0; dim < type.rank(); ++dim)
    if (type.strides[dim] != 0) elements *= static_cast<double>(type.shape[dim]);
  return elements * static_cast<double>(size_of(type.dtype));
}

// Of a table that is looked up in, each result element is taken to read one. No lower bound of the traffic, for an
// index may come twice: all may be the same row.
double most_read(const Graph& graph, const Node& node, ValueId operand) {
  const bool is_table = looks_up(node) &&
                        operand == (node.value("self") != kNoValue ? node.value("self") : node.value("weight"));
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

double bytes_moved(const GraphFacts& facts, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs) {
  const Graph& graph = facts.graph;
  Reads reads;
  for (NodeId node : nodes)
    for_each_operand(graph.nodes[node], [&](ValueId operand) {
      const ValueId root = facts.roots[operand];
      const NodeId producer = graph.values[root].producer;
      if (producer == kNoNode || !std::binary_search(nodes.begin(), nodes.end(), producer))
        reads.add(graph, root, operand, most_read(graph, graph.nodes[node], operand));
    });
  double bytes = reads.total();
  for (ValueId output : outputs) bytes += bytes_of(graph.type(output));
  return bytes;
}

}  // namespace kw::plan
