#include "plan/group_names.hpp"

#include "ir/op_registry.hpp"
#include "ir/spoken_name.hpp"

namespace kw::plan {

namespace {

std::vector<std::string> op_names(const Graph& graph, std::span<const NodeId> nodes) {
  std::vector<std::string> names;
  for (NodeId id : nodes) {
    if (op_info(graph.nodes[id].op).flags & kSilent) continue;
    const std::string name = spoken_name(base_name(graph.nodes[id]));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  if (names.empty()) names.push_back(nodes.size() == 1 ? "copy" : "elementwise");
  return names;
}

std::string shape_text(const TensorType& type) {
  std::string text = std::string(name_of(type.dtype)) + "[";
  for (size_t dim = 0; dim < type.shape.size(); ++dim) text += (dim ? ", " : "") + std::to_string(type.shape[dim]);
  return text + "]";
}

}  // namespace

std::string kernel_name(const Graph& graph, std::span<const NodeId> nodes) {
  const auto names = op_names(graph, nodes);
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names.size() > 5 && i >= 2 && i + 2 < names.size()) continue;  // the first two and the last two say enough
    text += names[i] + "_";
  }
  return text + "kernel";
}

std::string kernel_doc(const Graph& graph, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs) {
  std::string text;
  for (const auto& name : op_names(graph, nodes)) text += (text.empty() ? "" : ", ") + name;
  text += " →";
  for (size_t i = 0; i < outputs.size() && i < 4; ++i)
    text += (i ? ", " : " ") + graph.values[outputs[i]].name + " " + shape_text(graph.type(outputs[i]));
  return text;
}

}  // namespace kw::plan
