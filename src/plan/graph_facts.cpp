// What a graph's nodes are to the planner, and who reads what (domain.hpp).
#include "plan/bags.hpp"
#include "plan/domain.hpp"
#include "plan/rounded_values.hpp"
#include "plan/scatters.hpp"

namespace kw::plan {

GraphFacts::GraphFacts(const Graph& graph_in, const GraphForms& forms) : graph(graph_in), sorts(forms.sorts) {
  const auto node_count = static_cast<NodeId>(graph.nodes.size());
  kinds = kinds_of(graph);
  roots = storage_roots(graph, kinds);
  readers.resize(graph.values.size());
  escapes.assign(graph.values.size(), false);
  for (NodeId id = 0; id < node_count; ++id) {
    const Node& node = graph.nodes[id];
    if (kinds[id] == NodeKind::kView) continue;
    for_each_operand(node, [&](ValueId operand) {
      auto& list = readers[roots[operand]];
      if (list.empty() || list.back() != id) list.push_back(id);
    });
  }
  for (const auto& output : graph.outputs)
    if (output.value != kNoValue) escapes[roots[output.value]] = true;
  rounded = rounded_values(graph);
  for (NodeId id = 0; id < node_count; ++id)  // an empty result that somebody wants is the library's to make
    for (ValueId result : graph.nodes[id].results)
      if (result != kNoValue && graph.type(result).elements() == 0 && (escapes[result] || !readers[result].empty()) &&
          kinds[id] != NodeKind::kView)
        kinds[id] = NodeKind::kExtern;
  for (NodeId id = 0; id < node_count; ++id)  // of a bag's results we make the first
    for (ValueId result : graph.nodes[id].results)
      if (kinds[id] == NodeKind::kReduce && result != graph.nodes[id].results[0] && result != kNoValue &&
          (escapes[result] || !readers[result].empty()) && bags_of(graph, graph.nodes[id]))
        kinds[id] = NodeKind::kExtern;
  for (NodeId id = 0; id < node_count; ++id)
    if (const auto sort = kinds[id] == NodeKind::kScan ? sort_spec(graph, graph.nodes[id]) : std::nullopt;
        sort && (!takes_rows(sorts, *sort) || (reads_places(id, *sort) && !tells_places(sorts, graph, *sort))))
      kinds[id] = NodeKind::kExtern;
  for (NodeId id = 0; id < node_count; ++id)  // what a call updates is written where it lies, a slice of it alone
    if (kinds[id] == NodeKind::kPointwise && is_slice(graph.nodes[id]) &&
        graph.values[graph.nodes[id].value("self")].producer == kNoNode && owns_destination(*this, id))
      kinds[id] = NodeKind::kScatter;
}

bool GraphFacts::reads_places(NodeId id, const SortSpec& sort) const {
  const ValueId places = graph.nodes[id].results[1];
  // Values alone say nothing of the order of the two zeros, and do not tell equals apart that are picked one by one.
  const DType dtype = graph.type(sort.operand).dtype;
  const bool picks = sorts.picks_one_by_one && sort.first < sort.length;
  if (((sort.stable && is_floating(dtype)) || picks) && size_of(dtype) < 8) return true;
  return places != kNoValue && (escapes[places] || !readers[places].empty());
}

}  // namespace kw::plan
