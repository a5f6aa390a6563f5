#include "passes/expand_pools.hpp"

#include "ir/op_registry.hpp"

namespace kw {
namespace {

constexpr int64_t kShortestRow = 16;    // for SIMD
constexpr int64_t kShortestWindow = 3;  // smaller ones read little twice, and the row between costs as much

}  // namespace

void fold_rows_first(Rewriter& rewriter, Node& node, const std::function<bool(ValueId)>& is_read) {
  const auto base = base_name(node.op);
  const bool averages = base.ends_with("adaptive_avg_pool2d") || base.ends_with("adaptive_avg_pool3d"),
             largest = base == "adaptive_max_pool2d" || base == "adaptive_max_pool3d";
  if ((!averages && !largest) || (largest && is_read(node.results[1]))) return;
  const ValueId x = node.value("self");
  const TensorType from = rewriter.type(x), to = rewriter.type(node.results[0]);
  IntList size = node.integers("output_size");
  if ((from.dtype != DType::f32 && from.dtype != DType::f64) || !from.is_contiguous() || from.elements() == 0 ||
      to.elements() == 0)
    return;
  const int64_t width = from.shape.back(), windows = to.shape.back();
  if (width < kShortestRow || width % windows == 0 || width / windows < kShortestWindow) return;
  const size_t leading = from.shape.size() - size.size();
  int64_t rows = 1;
  for (size_t dim = leading; dim + 1 < from.shape.size(); ++dim) rows *= from.shape[dim] / to.shape[dim];
  if (size.back() != windows || rows < 2) return;
  size.back() = width;
  TensorType between = to;
  between.shape.back() = width;
  between.strides = contiguous_strides(between.shape);
  between.offset = 0;
  node.set("self", ValueRef{rewriter.emit(node.op, {{"self", ValueRef{x}}, {"output_size", size}}, between, "rows",
                                          largest ? 1 : 0)});
  rewriter.count(averages ? NumericTag::kReassociates : NumericTag::kExact);
}

}  // namespace kw
