#include <algorithm>
#include <map>

#include "ir/op_registry.hpp"

namespace kw {
namespace {

double elements(const Graph& graph, ValueId id) {
  return id == kNoValue ? 0.0 : static_cast<double>(graph.type(id).elements());
}

double result_elements(const Graph& graph, const Node& node) {
  for (const ValueId id : node.results)
    if (id != kNoValue) return elements(graph, id);
  return 0.0;
}

ValueId first_operand(const Node& node) {
  ValueId first = kNoValue;
  for_each_operand(node, [&](ValueId id) {
    if (first == kNoValue) first = id;
  });
  return first;
}

double largest_operand(const Graph& graph, const Node& node) {
  double most = 0.0;
  for_each_operand(node, [&](ValueId id) { most = std::max(most, elements(graph, id)); });
  return most;
}

int64_t last_size(const Graph& graph, ValueId id) {
  return id == kNoValue || graph.type(id).shape.empty() ? 1 : graph.type(id).shape.back();
}

// Every distinct label of the equation is a loop: 2·∏ extents.
double einsum_flops(const Graph& graph, const Node& node) {
  const std::string equation = node.text("equation");
  const auto* list = node.find("tensors") ? std::get_if<ValueList>(node.find("tensors")) : nullptr;
  if (!list || equation.find('.') != std::string::npos)
    return 2.0 * result_elements(graph, node) * last_size(graph, first_operand(node));
  std::map<char, int64_t> extents;
  size_t operand = 0, axis = 0;
  for (const char c : equation) {
    if (c == '-') break;
    if (c == ',') ++operand, axis = 0;
    else if (c != ' ' && operand < list->ids.size()) {
      const auto& shape = graph.type(list->ids[operand]).shape;
      if (axis < shape.size()) extents[c] = std::max(extents[c], shape[axis++]);
    }
  }
  double flops = 2.0;
  for (const auto& [label, extent] : extents) flops *= static_cast<double>(extent);
  return flops;
}

double contraction_flops(const Graph& graph, const Node& node, std::string_view name) {
  if (name == "einsum") return einsum_flops(graph, node);
  ValueId left = node.value("self");
  for (const char* candidate : {"mat1", "batch1", "mat", "input", "input1", "vec1"})
    if (const ValueId id = node.value(candidate); id != kNoValue) left = id;
  if (name == "dot" || name == "vdot" || name == "outer" || name == "ger" || name == "addr")
    return 2.0 * std::max(elements(graph, left), result_elements(graph, node));
  double flops = 2.0 * result_elements(graph, node) * static_cast<double>(last_size(graph, left));
  if (name == "bilinear") flops *= static_cast<double>(last_size(graph, node.value("input2")));
  if (name == "addbmm" && left != kNoValue) flops *= static_cast<double>(graph.type(left).shape.front());
  return flops;
}

double convolution_flops(const Graph& graph, const Node& node, std::string_view name) {
  const ValueId weight = node.value("weight");
  ValueId input = node.value("input");
  if (input == kNoValue) input = node.value("self");
  if (weight == kNoValue || input == kNoValue || graph.type(weight).shape.empty()) return 0.0;
  const auto& shape = graph.type(weight).shape;
  // [out, in/groups, kernel…] or, transposed, [in, out/groups, kernel…]: each point of the other side meets shape[1:].
  const double per_point = 2.0 * elements(graph, weight) / static_cast<double>(std::max<int64_t>(shape[0], 1));
  const bool transposed = name.find("transpose") != std::string_view::npos || node.boolean("transposed", false);
  return per_point * (transposed ? elements(graph, input) : result_elements(graph, node));
}

double attention_flops(const Graph& graph, const Node& node) {
  const ValueId query = node.value("query"), key = node.value("key"), value = node.value("value");
  if (query == kNoValue || key == kNoValue || value == kNoValue || graph.type(key).rank() < 2) return 0.0;
  const auto& keys = graph.type(key).shape;
  const double length = static_cast<double>(keys[keys.size() - 2]);
  const double width = static_cast<double>(std::max<int64_t>(last_size(graph, query), 1));
  const double flops = 2.0 * elements(graph, query) * length *
                       (1.0 + static_cast<double>(last_size(graph, value)) / width);
  return node.boolean("is_causal", false) ? flops / 2 : flops;
}

// Each weight meets every (step, batch) point once.
double recurrent_flops(const Graph& graph, const Node& node) {
  if (node.op == "kw.rnn_steps.default")
    return 2.0 * elements(graph, node.value("products")) * static_cast<double>(last_size(graph, node.value("weight")));
  const ValueId input = node.value("input");
  if (input == kNoValue) return 0.0;
  if (node.op == "kw.linear_steps.default") return 2.0 * elements(graph, input);
  const double points = elements(graph, input) / static_cast<double>(std::max<int64_t>(last_size(graph, input), 1));
  double weights = 0.0;
  for (const auto& argument : node.arguments) {
    if (argument.name == "params")
      if (const auto* list = std::get_if<ValueList>(&argument.value))
        for (const ValueId id : list->ids) weights += elements(graph, id);
    if (argument.name.starts_with("w_")) weights += elements(graph, node.value(argument.name));
  }
  return 2.0 * points * weights;
}

double pooling_flops(const Graph& graph, const Node& node) {
  double window = 1.0;
  const IntList kernel = node.integers("kernel_size");
  for (const int64_t size : kernel) window *= static_cast<double>(size);
  if (kernel.empty()) return largest_operand(graph, node);
  if (kernel.size() == 1)
    for (int axis = 1; axis < spatial_axes(op_info(node.op)); ++axis) window *= static_cast<double>(kernel.front());
  return window * result_elements(graph, node);
}

}  // namespace

double flops(const Graph& graph, const Node& node) {
  const OpInfo& info = op_info(node.op);
  switch (info.op_class) {
    case OpClass::kContraction: return contraction_flops(graph, node, info.name);
    case OpClass::kConvolution: return convolution_flops(graph, node, info.name);
    case OpClass::kAttention: return attention_flops(graph, node);
    case OpClass::kRecurrent: return recurrent_flops(graph, node);
    case OpClass::kPooling: return pooling_flops(graph, node);
    case OpClass::kReduction:
    case OpClass::kNormalisation:
    case OpClass::kScan:
    case OpClass::kLoss:
    case OpClass::kOther: return info.flops_per_element * largest_operand(graph, node);
    case OpClass::kPointwise:
    case OpClass::kRandom: return info.flops_per_element * result_elements(graph, node);
    case OpClass::kView:
    case OpClass::kDataMovement:
    case OpClass::kFactory: return 0.0;
  }
  return 0.0;
}

double bytes_moved(const Graph& graph, const Node& node) {
  const OpInfo& info = op_info(node.op);
  if (info.op_class == OpClass::kView) return 0.0;
  double written = 0.0;
  for (const ValueId id : node.results)
    if (id != kNoValue) written += static_cast<double>(graph.type(id).bytes());
  // What is expanded along an axis is read once: its memory counts, not its elements.
  const auto footprint = [](const TensorType& type) {
    double count = static_cast<double>(size_of(type.dtype));
    for (int64_t axis = 0; axis < type.rank(); ++axis)
      if (type.strides[axis] != 0 || type.shape[axis] == 0) count *= static_cast<double>(type.shape[axis]);
    return count;
  };
  double read = 0.0;
  std::vector<ValueId> seen;
  for_each_operand(node, [&](ValueId id) {
    if (std::find(seen.begin(), seen.end(), id) != seen.end()) return;
    if (seen.size() < 64) seen.push_back(id);
    const bool gathers = is_from_table(info.rule) && id == first_operand(node);  // no more than it writes
    read += gathers ? std::min(footprint(graph.type(id)), written) : footprint(graph.type(id));
  });
  return read + written;
}

}  // namespace kw
