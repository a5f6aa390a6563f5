#include "passes/expand_sorts.hpp"

#include "ir/op_registry.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

constexpr int64_t kLongestRow = 64;

Term both(const Term& left, const Term& right) { return left.call("logical_and.default", {{"other", right}}); }
Term either(const Term& left, const Term& right) { return left.call("logical_or.default", {{"other", right}}); }
Term no(const Term& term) { return term.apply("logical_not"); }

class Sorting {
 public:
  Sorting(Rewriter& rewriter, const Node& node, bool descending)
      : rewriter_(rewriter), x_(node.value("self")), type_(rewriter.type(x_)), descending_(descending) {
    dim_ = node.integer("dim", -1);
    if (dim_ < 0) dim_ += type_.rank();
    type_.strides = contiguous_strides(type_.shape);
    type_.offset = 0;
  }

  bool is_short() const {
    const bool is_wide = type_.dtype == DType::i64 || type_.dtype == DType::f64;
    return is_wide && type_.rank() > 0 && type_.elements() > 0 && dim_ < type_.rank() && length() <= kLongestRow;
  }
  int64_t length() const { return type_.shape[dim_]; }
  int64_t dim() const { return dim_; }

  ValueId sorted(TensorType type) { return scattered(x_, std::move(type)); }

  ValueId places(TensorType type) {
    Shape shape(type_.shape.size(), 1);
    shape[dim_] = length();
    return scattered(view(numbers(), shape).call("expand.default", {{"size", Argument(IntList(type_.shape))}}).id(),
                     std::move(type));
  }

 private:
  Term numbers() {
    TensorType line = type_;
    line.dtype = DType::i64;
    line.shape = {length()};
    line.strides = {1};
    return {rewriter_, rewriter_.emit("aten.arange.start_step",
                                      {{"start", int64_t{0}},
                                       {"end", length()},
                                       {"step", int64_t{1}},
                                       {"dtype", DType::i64},
                                       {"device", Keyword{"device", line.device}}},
                                      line, "numbers")};
  }

  // NaN is larger than any number, and as large as itself.
  Term is_less(const Term& left, const Term& right) const {
    const Term by_value = less(left, right);
    if (!is_floating(type_.dtype)) return by_value;
    return either(by_value, both(not_equal(right, right), equal(left, left)));
  }

  // How many elements come before each: the smaller ones, and of its equals those that stand before it.
  ValueId ranks() {
    if (ranks_ != kNoValue) return ranks_;
    const Term x = type_.dtype == DType::b1
                       ? Term(rewriter_, x_).call("_to_copy.default", {{"dtype", Argument(DType::i32)}})
                       : Term(rewriter_, x_);
    const auto unsqueezed = [&](int64_t dim) { return x.call("unsqueeze.default", {{"dim", Argument(dim)}}); };
    const Term own = unsqueezed(dim_ + 1), other = unsqueezed(dim_);
    Shape down(type_.shape.size() + 1 - static_cast<size_t>(dim_), 1), across = down;
    down[0] = across[1] = length();
    const Term all = numbers();
    const Term stands_before = less(view(all, across), view(all, down));
    const Term smaller = descending_ ? is_less(own, other) : is_less(other, own),
               larger = descending_ ? is_less(other, own) : is_less(own, other);
    const Term comes_before = where(stands_before, no(larger), smaller);
    TensorType counted = type_;
    counted.dtype = DType::i32;
    const Term ones = comes_before.call("_to_copy.default", {{"dtype", Argument(DType::i32)}});
    const Term rank(rewriter_,
                    rewriter_.emit("aten.sum.dim_IntList",
                                   {{"self", ValueRef{ones.id()}}, {"dim", IntList{dim_ + 1}}, {"dtype", DType::i32}},
                                   counted, "rank"));
    return ranks_ = rank.call("_to_copy.default", {{"dtype", Argument(DType::i64)}}).id();
  }

  // Types are copied: those of the graph move when it grows.
  ValueId scattered(ValueId source, TensorType type) {
    TensorType contiguous = type;
    contiguous.strides = contiguous_strides(type.shape);
    contiguous.offset = 0;
    const ValueId into = rewriter_.emit("aten.full.default",
                                        {{"size", IntList(type.shape)},
                                         {"fill_value", int64_t{0}},
                                         {"dtype", type.dtype},
                                         {"device", Keyword{"device", type.device}}},
                                        contiguous, "unsorted");
    return rewriter_.emit(
        "aten.scatter.src",
        {{"self", ValueRef{into}}, {"dim", dim_}, {"index", ValueRef{ranks()}}, {"src", ValueRef{source}}}, type);
  }

  Rewriter& rewriter_;
  ValueId x_;
  TensorType type_;
  bool descending_;
  int64_t dim_ = 0;
  ValueId ranks_ = kNoValue;
};

}  // namespace

bool expand_wide_sort(Rewriter& rewriter, const Node& node, const std::function<bool(ValueId)>& is_read) {
  const auto base = base_name(node.op);
  const bool picks = base == "topk";
  if ((!picks && node.op != "aten.sort.default" && node.op != "aten.sort.stable") || node.value("self") == kNoValue ||
      node.results.size() != 2)
    return false;
  Sorting sorting(rewriter, node, node.boolean(picks ? "largest" : "descending", picks));
  const ValueId values = node.results[0], indices = node.results[1];
  if (!sorting.is_short()) return false;
  if (!is_read(indices)) return false;
  const auto first_of = [&](ValueId whole, const TensorType& type) {
    const Term first = Term(rewriter, whole)
                           .call("slice.Tensor", {{"dim", Argument(sorting.dim())},
                                                  {"start", Argument(int64_t{0})},
                                                  {"end", Argument(type.shape[sorting.dim()])}});
    return rewriter.emit("aten.clone.default", {{"self", ValueRef{first.id()}}}, type);
  };
  const auto replace = [&](ValueId result, ValueId (Sorting::*make)(TensorType)) {
    const TensorType type = rewriter.type(result);
    TensorType whole = type;
    whole.shape[sorting.dim()] = sorting.length();
    if (picks) whole.strides = contiguous_strides(whole.shape);
    const ValueId made = (sorting.*make)(whole);
    rewriter.adopt(result, picks ? first_of(made, type) : made, NumericTag::kExact);
  };
  if (is_read(values)) replace(values, &Sorting::sorted);
  replace(indices, &Sorting::places);
  return true;
}

}  // namespace kw
