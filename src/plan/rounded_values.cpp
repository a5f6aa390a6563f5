#include "plan/rounded_values.hpp"

#include <algorithm>

#include "ir/op_registry.hpp"
#include "plan/op_table.hpp"

namespace kw::plan {

namespace {

// cuDNN rounds nothing in three dimensions where a group has so few channels, nor in groups that are not depthwise,
// whatever it may.
constexpr int64_t kFewChannels = 4;

bool is_single(const Graph& graph, ValueId value) {
  const TensorType& type = graph.type(value);
  return type.dtype == DType::f32 && type.device.starts_with("cuda");
}

// Of matrices, not of one with a vector, for which cuBLAS has kernels that round nothing.
bool rounds_product(const Graph& graph, const Node& node) {
  if (!graph.tf32_products || node.results.size() != 1) return false;
  const TensorType& type = graph.type(node.results[0]);
  return type.dtype == DType::f32 && type.rank() > 1 && type.shape.back() > 1 && type.elements() > type.shape.back();
}

// The largest of its operands have to be rounded.
bool is_made_of_rounded(const Graph& graph, const Node& node, const std::vector<bool>& rounded) {
  int64_t largest = 0, largest_rounded = 0;
  for_each_operand(node, [&](ValueId operand) {
    if (!is_floating(graph.type(operand).dtype)) return;
    int64_t& most = rounded[operand] ? largest_rounded : largest;
    most = std::max(most, graph.type(operand).elements());
  });
  return largest_rounded > largest;
}

}  // namespace

bool rounds_operands(const Graph& graph, const Node& node) {
  if (class_of(node.op) == OpClass::kContraction) return rounds_product(graph, node);
  if (class_of(node.op) != OpClass::kConvolution || !graph.tf32_convolutions) return false;
  const ValueId input = node.value("input"), weight = node.value("weight");
  if (input == kNoValue || weight == kNoValue || !is_single(graph, input)) return false;
  const int64_t dims = graph.type(weight).rank() - 2, groups = node.integer("groups", 1);
  const int64_t channels = graph.type(input).rank() > 1 ? graph.type(input).shape[1] / groups : 1;
  const bool transposed = base_name(node).find("transpose") != std::string_view::npos;
  const bool is_grouped = groups > 1 && channels > 1 && !transposed;
  return !is_grouped && !(dims == 3 && channels < kFewChannels);
}

std::vector<bool> rounded_values(const Graph& graph) {
  std::vector<bool> rounded(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    const bool rounds = rounds_operands(graph, node) &&
                        (class_of(node.op) != OpClass::kConvolution || node.integer("groups", 1) == 1);
    if (!rounds && !is_made_of_rounded(graph, node, rounded)) continue;
    for (const ValueId result : node.results)
      if (result != kNoValue) rounded[result] = is_single(graph, result);
  }
  return rounded;
}

}  // namespace kw::plan
