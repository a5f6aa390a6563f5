#include "passes/expand_attention.hpp"

#include <algorithm>
#include <cmath>

#include "ir/op_registry.hpp"
#include "plan/product.hpp"

namespace kw {

std::optional<Term> expand_attention(Rewriter& rewriter, const Node& node) {
  if (base_name(node.op) != "scaled_dot_product_attention") return std::nullopt;
  const ValueId query = node.value("query"), key = node.value("key"), value = node.value("value");
  if (query == kNoValue || key == kNoValue || value == kNoValue || node.value("attn_mask") != kNoValue ||
      node.number("dropout_p", 0.0) != 0.0 || node.boolean("is_causal", false) || node.boolean("enable_gqa", false))
    return std::nullopt;
  // Types are copied: those of the graph move when it grows.
  const TensorType q = rewriter.type(query), k = rewriter.type(key), v = rewriter.type(value),
                   result = rewriter.type(node.results[0]);
  const int64_t rank = q.rank();
  if (q.device.starts_with("cpu") || rank < 3 || k.rank() != rank || v.rank() != rank || q.dtype != DType::f32 ||
      k.dtype != q.dtype || v.dtype != q.dtype || result.elements() == 0 || k.elements() == 0 ||
      std::max(q.shape.back(), v.shape.back()) <= plan::kWidestHead ||
      !std::equal(q.shape.begin(), q.shape.end() - 2, k.shape.begin()) ||
      !std::equal(q.shape.begin(), q.shape.end() - 2, v.shape.begin()))
    return std::nullopt;

  TensorType scores = q;
  scores.shape.back() = k.shape[rank - 2];
  scores.strides = contiguous_strides(scores.shape);
  scores.offset = 0;
  const Term keys = Term(rewriter, key)
                        .call("transpose.int", {{"dim0", Argument(int64_t{-2})}, {"dim1", Argument(int64_t{-1})}});
  const Term product(rewriter,
                     rewriter.emit("aten.matmul.default", {{"self", ValueRef{query}}, {"other", ValueRef{keys.id()}}},
                                   scores, "scores"));
  const double scale = node.number("scale", 1.0 / std::sqrt(static_cast<double>(q.shape.back())));
  const Term scaled = product * Term(scale);
  const ValueId weights = rewriter.emit("aten.softmax.int", {{"self", ValueRef{scaled.id()}}, {"dim", int64_t{-1}}},
                                        scores, "weights");
  TensorType dense = result;
  dense.strides = contiguous_strides(dense.shape);
  dense.offset = 0;
  const ValueId attended = rewriter.emit("aten.matmul.default",
                                         {{"self", ValueRef{weights}}, {"other", ValueRef{value}}}, dense, "attention");
  // PyTorch's kernels for GPUs have their results' heads side by side.
  const bool is_dense = result.strides == dense.strides;
  return Term(rewriter, is_dense
                            ? attended
                            : rewriter.emit("aten.clone.default", {{"self", ValueRef{attended}}}, result, "strided"));
}

}  // namespace kw
