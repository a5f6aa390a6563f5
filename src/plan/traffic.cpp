#include "plan/traffic.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "plan/scatters.hpp"

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

// Adds what `value` reads of its root, at most the whole root, and once if several read all of it.
struct Reads {
  std::map<ValueId, double> bytes;
  std::set<ValueId> whole;
  void add(const Graph& graph, ValueId root, ValueId value, double most) {
    if (most == std::numeric_limits<double>::infinity() && !whole.insert(value).second) return;
    bytes[root] = std::min(bytes[root] + std::min(bytes_of(graph.type(value)), most), bytes_of(graph.type(root)));
  }
  double total() const {
    double sum = 0;
    for (const auto& [root, one] : bytes) sum += one;
    return sum;
  }
};

}  // namespace

MovedBytes moved_bytes(const GraphFacts& facts, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs) {
  const Graph& graph = facts.graph;
  std::map<ValueId, double> in_place;  // what is written where its operand lies, and how much of it
  Reads reads;
  for (NodeId id : nodes) {
    const Node& node = graph.nodes[id];
    if (facts.kinds[id] == NodeKind::kView) continue;
    ValueId into = kNoValue;  // what is written to and not read
    if (facts.kinds[id] == NodeKind::kScatter && owns_destination(facts, id)) {
      const auto spec = scatter_spec(graph, id);
      if (!spec->fold) into = spec->into;
      const TensorType& type = graph.type(node.results[0]);
      in_place[node.results[0]] = std::min(static_cast<double>(product(spec->domain) * size_of(type.dtype)),
                                           bytes_of(type));
    }
    for_each_operand(node, [&](ValueId operand) {
      const ValueId root = facts.roots[operand];
      const NodeId producer = graph.values[root].producer;
      const double most = most_read(graph, node, operand);
      if (producer == kNoNode || !std::binary_search(nodes.begin(), nodes.end(), producer)) {
        if (operand != into) reads.add(graph, root, operand, most);
      } else if (const auto written = in_place.find(root); written != in_place.end()) {  // the rest is as it was
        reads.add(graph, root, operand, std::max(0.0, std::min(most, bytes_of(graph.type(operand))) - written->second));
      }
    });
  }
  MovedBytes moved{reads.total(), 0};
  for (ValueId output : outputs)
    moved.written += in_place.contains(output) ? in_place.at(output) : bytes_of(graph.type(output));
  return moved;
}

double bytes_moved(const GraphFacts& facts, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs) {
  const MovedBytes moved = moved_bytes(facts, nodes, outputs);
  return moved.read + moved.written;
}

}  // namespace kw::plan
