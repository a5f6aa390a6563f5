#include "passes/dead_code.hpp"

#include "ir/op_registry.hpp"

namespace kw {

RewriteCounts dead_code(Graph& graph) {
  std::vector<bool> live = graph.is_output();
  std::vector<bool> stays(graph.nodes.size(), true);
  RewriteCounts counts;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool read = !is_pure(node) && class_of(node.op) != OpClass::kFactory;  // uninitialised memory is impure because no
                                                                           // two are the same
    for (const ValueId id : node.results) read = read || (id != kNoValue && live[id]);
    stays[i] = read;
    if (read) for_each_operand(node, [&](ValueId id) { live[id] = true; });
    else counts.add(NumericTag::kExact);
  }
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
