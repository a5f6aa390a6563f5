#include "passes/expand_attention.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/op_registry.hpp"
#include "plan/product.hpp"

namespace kw {

namespace {

TensorType permuted(TensorType type, const Shape& dims) {
  const Shape shape = type.shape, strides = type.strides;
  for (size_t place = 0; place < dims.size(); ++place) {
    type.shape[place] = shape[dims[place]];
    type.strides[place] = strides[dims[place]];
  }
  return type;
}

// PyTorch's kernels for GPUs have their results' heads side by side: a copy of the dense value, dimensions in the order
// that the result has in memory. A clone alone has the strides of what it copies, where the library makes it.
ValueId with_strides(Rewriter& rewriter, ValueId dense, const TensorType& result) {
  Shape order(result.rank()), back(result.rank());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return result.strides[a] > result.strides[b]; });
  for (size_t place = 0; place < order.size(); ++place) back[order[place]] = static_cast<int64_t>(place);
  const TensorType turned = permuted(rewriter.type(dense), order), stored = permuted(result, order);
  const ValueId view = rewriter.emit("aten.permute.default", {{"self", ValueRef{dense}}, {"dims", IntList{order}}},
                                     turned);
  const ValueId copy = rewriter.emit(
      "aten.clone.default",
      {{"self", ValueRef{view}}, {"memory_format", Keyword{"memory_format", "contiguous_format"}}}, stored, "strided");
  return rewriter.emit("aten.permute.default", {{"self", ValueRef{copy}}, {"dims", IntList{back}}}, result);
}

// Of so few queries one kernel takes wide heads, too (plan/attention).
bool is_decoding(const TensorType& query, const TensorType& value) {
  return query.shape[query.rank() - 2] <= plan::kFewRows &&
         std::max(query.shape.back(), value.shape.back()) <= plan::kWidestHeadOfFew;
}

}  // namespace

std::optional<Term> expand_wide_heads(Rewriter& rewriter, const Node& node) {
  if (base_name(node.op) != "scaled_dot_product_attention") return std::nullopt;
  const ValueId query = node.value("query"), key = node.value("key"), value = node.value("value");
  if (query == kNoValue || key == kNoValue || value == kNoValue || node.value("attn_mask") != kNoValue ||
      node.number("dropout_p", 0.0) != 0.0 || node.boolean("is_causal", false) || node.boolean("enable_gqa", false))
    return std::nullopt;
  // Types are copied: those of the graph move when it grows.
  const TensorType q = rewriter.type(query), k = rewriter.type(key), v = rewriter.type(value),
                   result = rewriter.type(node.results[0]);
  const int64_t rank = q.rank();
  if (rank < 3 || k.rank() != rank || v.rank() != rank || q.dtype != DType::f32 || k.dtype != q.dtype ||
      v.dtype != q.dtype || result.elements() == 0 || k.elements() == 0 ||
      std::max(q.shape.back(), v.shape.back()) <= plan::kWidestHead || is_decoding(q, v) ||
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
  return Term(rewriter, result.strides == dense.strides ? attended : with_strides(rewriter, attended, result));
}

}  // namespace kw
