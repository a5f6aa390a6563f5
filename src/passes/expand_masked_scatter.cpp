#include "passes/expand_masked_scatter.hpp"

#include "passes/maths.hpp"

namespace kw {
namespace {

// One program or thread walks the mask; of a longer one PyTorch's scan is shared out on a GPU, and its one pass over
// everything cheaper on a CPU.
constexpr int64_t kLongestMask = 16384;

// A tensor that lies without gaps, as a view of it in another shape must.
Term in_a_row(Rewriter& rewriter, ValueId id) {
  TensorType type = rewriter.type(id);
  if (type.is_contiguous()) return {rewriter, id};
  type.strides = contiguous_strides(type.shape);
  type.offset = 0;
  return {rewriter, rewriter.emit("aten.clone.default", {{"self", ValueRef{id}}}, type)};
}

Term at_shape(const Term& term, Rewriter& rewriter, const Shape& shape) {
  return {rewriter, term.call("view.default", {{"size", Argument(IntList(shape))}}).id()};
}

}  // namespace

bool expand_masked_scatter(Rewriter& rewriter, const Node& node) {
  if (node.op != "aten.masked_scatter.default") return false;
  const ValueId self = node.value("self"), given = node.value("mask"), source = node.value("source");
  const TensorType type = rewriter.type(node.results[0]);
  const bool good = rewriter.type(self).shape == type.shape && rewriter.type(source).dtype == type.dtype &&
                    rewriter.type(given).dtype == DType::b1 && rewriter.type(source).elements() > 0;
  if (!good || type.elements() < 2 || type.elements() > kLongestMask || type.dtype == DType::c64 ||
      type.dtype == DType::c128)
    return false;
  ValueId mask = given;
  if (rewriter.type(mask).shape != type.shape)
    mask = Term(rewriter, mask).call("expand.default", {{"size", Argument(IntList(type.shape))}}).id();
  TensorType counts = type;
  counts.dtype = DType::i32;
  counts.shape = {type.elements()};
  counts.strides = {1};
  counts.offset = 0;
  const Term marked = in_a_row(rewriter, mask);
  const Term flat = at_shape(marked, rewriter, counts.shape);
  const Term count(rewriter, rewriter.emit("aten.cumsum.default",
                                           {{"self", ValueRef{flat.id()}}, {"dim", int64_t{0}}, {"dtype", DType::i32}},
                                           counts, "count"));
  const Term number = where(marked, at_shape(count, rewriter, type.shape) - int64_t{1}, int64_t{0});
  const Term line = at_shape(in_a_row(rewriter, source), rewriter, {rewriter.type(source).elements()});
  TensorType picked = type;
  picked.strides = contiguous_strides(type.shape);
  const Term element(rewriter, rewriter.emit("aten.index.Tensor",
                                             {{"self", ValueRef{line.id()}}, {"indices", ValueList{{number.id()}}}},
                                             picked, "picked"));
  rewriter.adopt(
      node.results[0],
      rewriter.emit("aten.where.self",
                    {{"condition", ValueRef{marked.id()}}, {"self", ValueRef{element.id()}}, {"other", ValueRef{self}}},
                    type),
      NumericTag::kExact);
  return true;
}

}  // namespace kw
