#include "passes/destinations.hpp"

#include "plan/domain.hpp"
#include "plan/scatters.hpp"

namespace kw {

RewriteCounts destinations(Graph& graph, const GraphForms& forms) {
  std::vector<bool> wants_copy(graph.nodes.size(), false);
  bool any = false;
  {
    const plan::GraphFacts facts(graph, forms);
    for (NodeId node = 0; node < static_cast<NodeId>(graph.nodes.size()); ++node) {
      wants_copy[node] = facts.kinds[node] == plan::NodeKind::kScatter && !plan::owns_destination(facts, node);
      any = any || wants_copy[node];
    }
  }
  if (!any) return {};
  Rewriter rewriter(graph);
  size_t next = 0;
  return rewriter.run([&](Node& node) {
    if (!wants_copy[next++]) return false;
    TensorType type = rewriter.type(node.results[0]);
    type.offset = 0;
    node.set("self", ValueRef{rewriter.emit("aten.clone.default", {{"self", ValueRef{node.value("self")}}}, type)});
    rewriter.count(NumericTag::kExact);
    return false;
  });
}

}  // namespace kw
