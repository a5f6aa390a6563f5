#include "passes/canonicalise.hpp"

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

}  // namespace

RewriteCounts canonicalise(Graph& graph) {
  Rewriter rewriter(graph);
  CanonicalContext context{rewriter, Sharing(graph), count_reads(graph)};
  return rewriter.run([&](Node& node) {
    if (is_static_assertion(node.op)) {
      rewriter.count(NumericTag::kExact);
      return true;
    }
    if (!node.op.starts_with("aten.") || node.results.empty()) return false;
    return canonicalise_operator(node, context) || canonicalise_view(node, context) || canonicalise_copy(node, context);
  });
}

}  // namespace kw
