#include "passes/dead_code.hpp"

#include "ir/op_registry.hpp"

namespace kw {

std::vector<bool> live_nodes(const Graph& graph) {
  std::vector<bool> is_read = graph.is_output(), live(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool read = !is_pure(node) && class_of(node.op) != OpClass::kFactory;  // uninitialised memory is impure because no
                                                                           // two are the same
    for (const ValueId id : node.results) read = read || (id != kNoValue && is_read[id]);
    live[i] = read;
    if (read) for_each_operand(node, [&](ValueId id) { is_read[id] = true; });
  }
  return live;
}

RewriteCounts dead_code(Graph& graph) {
  const std::vector<bool> stays = live_nodes(graph);
  RewriteCounts counts;
  for (const bool stay : stays)
    if (!stay) counts.add(NumericTag::kExact);
  if (counts.total() == 0) return counts;
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (stays[i]) kept.push_back(std::move(graph.nodes[i]));
  graph.nodes = std::move(kept);
  renumber(graph);
  return counts;
}

}  // namespace kw
