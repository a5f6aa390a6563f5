#include "passes/canonicalise.hpp"

#include <algorithm>
#include <string>

#include "ir/op_registry.hpp"

namespace kw {
namespace {

std::vector<int> count_reads(const Graph& graph) {
  std::vector<int> reads(graph.values.size(), 0);
  for (const auto& node : graph.nodes) for_each_operand(node, [&](ValueId id) { ++reads[id]; });
  for (const auto& output : graph.outputs)
    if (output.value != kNoValue) ++reads[output.value];
  return reads;
}

// What only states facts of shapes and element types, which the graph's types state anyhow.
bool is_static_assertion(std::string_view op) {
  return op == "aten._assert_tensor_metadata.default" || op == "aten.sym_constrain_range.default" ||
         op == "aten.sym_constrain_range_for_size.default";
}

// A number that forward makes a tensor of, on the CPU, beside tensors of another device: PyTorch takes it as a number
// there, and the emitted file can make it on that device.
void move_numbers_to_their_readers(Graph& graph, Rewriter& rewriter) {
  for (const GraphInput& input : graph.inputs) {
    TensorType& type = graph.values[input.value].type;
    if (input.kind != InputKind::kConstant || !input.access.empty() || type.rank() != 0 || type.device != "cpu")
      continue;
    std::string device;
    bool agree = true;
    for (const Node& node : graph.nodes) {
      bool reads = false;
      for_each_operand(node, [&](ValueId operand) { reads = reads || operand == input.value; });
      if (!reads) continue;
      const bool known = !node.results.empty() && node.results[0] != kNoValue;
      const std::string& there = known ? graph.type(node.results[0]).device : type.device;
      agree = agree && (device.empty() || device == there);
      device = there;
    }
    const bool escapes = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                     [&](const GraphOutput& output) { return output.value == input.value; });
    if (!agree || escapes || device.empty() || device == type.device) continue;
    type.device = device;
    rewriter.count(NumericTag::kExact);
  }
}

}  // namespace

RewriteCounts canonicalise(Graph& graph) {
  Rewriter rewriter(graph);
  move_numbers_to_their_readers(graph, rewriter);
  CanonicalContext context{rewriter, Sharing(graph), count_reads(graph)};
  return rewriter.run([&](Node& node) {
    if (is_static_assertion(node.op)) {
      rewriter.count(NumericTag::kExact);
      return true;
    }
    if (!node.op.starts_with("aten.") || node.results.empty()) return false;
    return canonicalise_operator(node, context) || canonicalise_view(node, context) ||
           canonicalise_copy(node, context) || canonicalise_concatenation(node, context);
  });
}

}  // namespace kw
