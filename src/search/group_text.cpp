#include <algorithm>
#include <map>

#include "ir/text.hpp"
#include "search/catalogue.hpp"

namespace kw::search {

std::string group_text(const Graph& graph, const std::vector<NodeId>& nodes, const std::vector<ValueId>& outputs) {
  Graph small;
  small.name = "Group";
  small.training = graph.training;
  std::map<ValueId, ValueId> renamed;
  const auto rename = [&](ValueId value) {
    const auto [place, added] = renamed.emplace(value, static_cast<ValueId>(small.values.size()));
    if (added) {
      Value one = graph.values[value];
      one.name = "v" + std::to_string(place->second);
      one.producer = kNoNode;
      small.values.push_back(std::move(one));
    }
    return place->second;
  };
  // Views between the nodes say how one reads another's result.
  std::vector<NodeId> all = nodes;
  for (size_t i = 0; i < all.size(); ++i)
    for_each_operand(graph.nodes[all[i]], [&](ValueId operand) {
      const NodeId producer = graph.values[operand].producer;
      if (producer == kNoNode || std::find(all.begin(), all.end(), producer) != all.end()) return;
      const Node& node = graph.nodes[producer];
      bool is_view = node.results.size() == 1;
      if (is_view) {
        int tensors = 0;
        bool inside = false;
        for_each_operand(node, [&](ValueId base) {
          ++tensors;
          const NodeId below = graph.values[base].producer;
          inside = inside || (below != kNoNode && std::find(all.begin(), all.end(), below) != all.end());
        });
        is_view = tensors == 1 && inside;
      }
      if (is_view) all.push_back(producer);
    });
  std::sort(all.begin(), all.end());
  std::vector<ValueId> made;
  for (const NodeId id : all)
    for (const ValueId result : graph.nodes[id].results)
      if (result != kNoValue) made.push_back(result);
  for (const NodeId id : all) {
    Node node = graph.nodes[id];
    node.location.clear();
    for_each_operand(node, [&](ValueId& operand) {
      const bool fresh = !renamed.contains(operand) && std::find(made.begin(), made.end(), operand) == made.end();
      operand = rename(operand);
      if (fresh)
        small.inputs.push_back({.value = operand,
                                .kind = InputKind::kUser,
                                .target = "args." + std::to_string(small.inputs.size()),
                                .access = "",
                                .requires_grad = false,
                                .data = ""});
    });
    for (ValueId& result : node.results)
      if (result != kNoValue) result = rename(result);
    small.nodes.push_back(std::move(node));
  }
  for (const ValueId output : outputs)
    small.outputs.push_back({.value = rename(output), .kind = OutputKind::kUser, .target = ""});
  link_producers(small);
  return print(small);
}

}  // namespace kw::search
