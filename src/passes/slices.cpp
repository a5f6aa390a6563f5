#include "passes/slices.hpp"

#include <algorithm>
#include <numeric>

namespace kw {

bool is_slicing(const Node& node) { return node.op == "aten.select.int" || node.op == "aten.view.default"; }

std::optional<Slice> slice_of(const Rewriter& rewriter, ValueId value) {
  const Node* node = value == kNoValue ? nullptr : rewriter.producer(value);
  if (node == nullptr || !is_slicing(*node)) return std::nullopt;
  Slice slice;
  if (node->op == "aten.select.int") {
    slice = {node->value("self"), node->integer("dim", 0), node->integer("index", 0)};
  } else {
    const Node* part = rewriter.producer(node->value("self"));
    if (part == nullptr || part->op != "aten.slice.Tensor") return std::nullopt;
    slice = {part->value("self"), part->integer("dim", 0), part->integer("start", 0)};
    Shape one = rewriter.type(part->results[0]).shape;
    const int64_t dim = slice.dim < 0 ? slice.dim + std::ssize(one) : slice.dim;
    if (one[dim] != 1) return std::nullopt;
    one.erase(one.begin() + dim);
    if (one != rewriter.type(value).shape) return std::nullopt;
  }
  const Shape& shape = rewriter.type(slice.whole).shape;
  if (slice.dim < 0) slice.dim += std::ssize(shape);
  if (slice.index < 0) slice.index += shape[slice.dim];
  slice.index = std::clamp<int64_t>(slice.index, 0, shape[slice.dim] - 1);
  return slice;
}

ValueId emit_permuted(Rewriter& rewriter, ValueId tensor, const IntList& order) {
  if (std::is_sorted(order.begin(), order.end())) return tensor;
  return rewriter.emit("aten.permute.default", {{"self", ValueRef{tensor}}, {"dims", order}});
}

ValueId emit_slices(Rewriter& rewriter, const Slice& first, int64_t count) {
  ValueId slices = first.whole;
  if (first.index != 0 || count != rewriter.type(slices).shape[first.dim])
    slices = rewriter.emit(
        "aten.slice.Tensor",
        {{"self", ValueRef{slices}}, {"dim", first.dim}, {"start", first.index}, {"end", first.index + count}});
  IntList order(rewriter.type(slices).shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + first.dim, order.begin() + first.dim + 1);
  return emit_permuted(rewriter, slices, order);
}

ValueId emit_slice(Rewriter& rewriter, ValueId whole, int64_t index) {
  return rewriter.emit("aten.select.int", {{"self", ValueRef{whole}}, {"dim", int64_t{0}}, {"index", index}});
}

}  // namespace kw
