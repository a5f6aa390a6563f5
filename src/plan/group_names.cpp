#include "plan/group_names.hpp"

#include <set>
#include <unordered_map>

#include "ir/op_registry.hpp"
#include "ir/spoken_name.hpp"

namespace kw::plan {

namespace {

const std::unordered_map<std::string_view, std::string_view> kResultNames = {
    {"relu", "rectified"},
    {"gelu", "activated"},
    {"silu", "activated"},
    {"mish", "activated"},
    {"elu", "activated"},
    {"selu", "activated"},
    {"celu", "activated"},
    {"leaky_relu", "activated"},
    {"hardswish", "activated"},
    {"softplus", "activated"},
    {"sigmoid", "gate"},
    {"hardsigmoid", "gate"},
    {"hardtanh", "clamped"},
    {"clamp", "clamped"},
    {"softmax", "share"},
    {"_softmax", "share"},
    {"layer_norm", "normalised"},
    {"native_layer_norm", "normalised"},
    {"rms_norm", "normalised"},
    {"group_norm", "normalised"},
    {"batch_norm", "normalised"},
    {"_native_batch_norm_legit_functional", "normalised"},
    {"instance_norm", "normalised"},
    {"log_softmax", "log_share"}};

std::vector<std::string> op_names(const Graph& graph, std::span<const NodeId> nodes) {
  static const std::set<std::string_view> silent = {"clone",         "_to_copy",       "to", "view", "full", "zeros",
                                                    "scalar_tensor", "lift_fresh_copy"};
  std::vector<std::string> names;
  for (NodeId id : nodes) {
    const std::string_view base = base_name(graph.nodes[id]);
    if (silent.contains(base)) continue;
    const std::string name = spoken_name(base);
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

std::string_view result_name(std::string_view op) {
  const auto found = kResultNames.find(op);
  return found == kResultNames.end() ? std::string_view() : found->second;
}

}  // namespace kw::plan
