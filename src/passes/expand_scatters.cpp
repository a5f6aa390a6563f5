#include "passes/expand_scatters.hpp"

#include <limits>

#include "ir/op_registry.hpp"

namespace kw {
namespace {

struct ScatterFold {
  Rewriter& rewriter;
  const Node& node;
  ValueId into, source, index;
  int64_t dim;
  TensorType type;  // of the result, dense
  std::string reduce;

  // What changes nothing when it is folded; nullopt: nothing of that type.
  Argument identity() const {
    if (reduce == "prod") return int64_t{1};
    if (reduce != "amax" && reduce != "amin") return int64_t{0};
    const bool largest = reduce == "amax";
    if (is_floating(type.dtype))
      return largest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    if (type.dtype == DType::i64)
      return largest ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
    return int64_t{largest ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max()};
  }

  Argument at() const { return dim; }

  ValueId put(ValueId to, Argument value) const {
    return rewriter.emit(
        "aten.scatter.value",
        {{"self", ValueRef{to}}, {"dim", at()}, {"index", ValueRef{index}}, {"value", std::move(value)}}, type,
        "cleared");
  }
  ValueId sum(ValueId to, ValueId what, std::string_view name) const {
    return rewriter.emit("aten.scatter_add.default",
                         {{"self", ValueRef{to}}, {"dim", at()}, {"index", ValueRef{index}}, {"src", ValueRef{what}}},
                         type, name);
  }
  ValueId full(const TensorType& like, int64_t value) const {
    TensorType contiguous = like;
    contiguous.strides = contiguous_strides(like.shape);
    contiguous.offset = 0;
    return rewriter.emit("aten.full.default",
                         {{"size", IntList(like.shape)},
                          {"fill_value", value},
                          {"dtype", like.dtype},
                          {"device", Keyword{"device", like.device}}},
                         contiguous);
  }

  ValueId folded(ValueId to) const {
    if (reduce == "sum") return sum(to, source, "");
    return rewriter.emit("aten.scatter_reduce.two",
                         {{"self", ValueRef{to}},
                          {"dim", at()},
                          {"index", ValueRef{index}},
                          {"src", ValueRef{source}},
                          {"reduce", reduce}},
                         type);
  }
};

std::optional<Term> expand_fold(Rewriter& rewriter, const Node& node) {
  const bool by_slice = base_name(node.op) == "index_reduce";
  ScatterFold fold{rewriter,
                   node,
                   node.value("self"),
                   node.value(by_slice ? "source" : "src"),
                   node.value("index"),
                   node.integer("dim", 0),
                   rewriter.type(node.results[0]),
                   node.text("reduce")};
  const DType dtype = fold.type.dtype;
  const bool include = node.boolean("include_self", true), mean = fold.reduce == "mean";
  if ((include && !mean && !by_slice) || fold.into == kNoValue || fold.source == kNoValue || fold.index == kNoValue)
    return std::nullopt;
  if (!(dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i32 || dtype == DType::i64) ||
      !fold.type.is_dense())
    return std::nullopt;
  const TensorType source = rewriter.type(fold.source);
  if (source.rank() == 0 || source.rank() != fold.type.rank() || fold.type.elements() == 0 ||
      rewriter.type(fold.index).elements() == 0)
    return std::nullopt;
  if (by_slice) {
    Shape shape(source.shape.size(), 1);
    shape[fold.dim < 0 ? fold.dim + source.rank() : fold.dim] = rewriter.type(fold.index).elements();
    const Term places = view(Term(rewriter, fold.index), shape)
                            .call("expand.default", {{"size", Argument(IntList(source.shape))}});
    fold.index = places.id();
  }
  const ValueId start = include ? fold.into : fold.put(fold.into, fold.identity());
  if (!mean) return Term(rewriter, fold.folded(start));
  TensorType points = rewriter.type(fold.index);
  points.dtype = dtype;
  const ValueId total = fold.sum(start, fold.source, "total");
  const ValueId count = fold.sum(fold.full(fold.type, include ? 1 : 0), fold.full(points, 1), "count");
  if (is_floating(dtype)) return Term(rewriter, total) / at_least(Term(rewriter, count), 1.0);
  const Term counted = Term(rewriter, count).call("clamp.default", {{"min", Argument(int64_t{1})}});
  return Term(rewriter, total)
      .call("div.Tensor_mode", {{"other", counted}, {"rounding_mode", Argument(std::string("floor"))}});
}

// x[mask] = number
std::optional<Term> choose(Rewriter& rewriter, const Node& node) {
  const Argument* given = node.find("indices");
  const auto* list = given ? std::get_if<ValueList>(given) : nullptr;
  const ValueId into = node.value("self"), values = node.value("values");
  if (!list || list->ids.size() != 1 || list->ids[0] == kNoValue || into == kNoValue || values == kNoValue ||
      node.boolean("accumulate", false))
    return std::nullopt;
  const TensorType mask = rewriter.type(list->ids[0]), type = rewriter.type(node.results[0]),
                   value = rewriter.type(values);
  if (mask.dtype != DType::b1 || value.elements() != 1 || value.dtype != type.dtype || mask.rank() > type.rank() ||
      mask.device != type.device || value.device != type.device)
    return std::nullopt;
  Term condition(rewriter, list->ids[0]);
  if (mask.rank() < type.rank()) {
    Shape shape = mask.shape;
    shape.resize(type.shape.size(), 1);
    if (!mask.is_contiguous()) return std::nullopt;
    condition = view(condition, shape);
  }
  const Term one = value.rank() == 0 ? Term(rewriter, values) : view(Term(rewriter, values), {});
  return Term(
      rewriter,
      rewriter.emit("aten.where.self",
                    {{"condition", ValueRef{condition.id()}}, {"self", ValueRef{one.id()}}, {"other", ValueRef{into}}},
                    type));
}

}  // namespace

std::optional<Term> expand_scatter(Rewriter& rewriter, const Node& node) {
  const auto base = base_name(node.op);
  if (base == "scatter_reduce" || base == "index_reduce") return expand_fold(rewriter, node);
  if (base == "index_put" || base == "_unsafe_index_put") return choose(rewriter, node);
  return std::nullopt;
}

const Node* sum_into_zeros(const Rewriter& rewriter, ValueId id) {
  constexpr int64_t kFew = 16;  // numbers for each element: added to one that is larger than they are, more would lose
                                // digits that their own sum keeps
  const Node* node = rewriter.producer(id);
  if (!node || (node->op != "aten.index_add.default" && node->op != "aten.scatter_add.default")) return nullptr;
  const TensorType& type = rewriter.type(id);
  const ValueId source = node->value(node->op == "aten.index_add.default" ? "source" : "src"),
                into = node->value("self");
  if (source == kNoValue || into == kNoValue || (type.dtype != DType::f32 && type.dtype != DType::f64)) return nullptr;
  if (rewriter.type(source).elements() > kFew * type.elements()) return nullptr;
  const Node* zeros = rewriter.producer(into);
  if (!zeros) return nullptr;
  const auto base = base_name(zeros->op);
  const bool filled = base == "full" || base == "full_like" || base == "new_full";
  if (base != "zeros" && base != "zeros_like" && base != "new_zeros" &&
      !(filled && zeros->value("fill_value") == kNoValue && zeros->number("fill_value", 1.0) == 0.0))
    return nullptr;
  return node;
}

}  // namespace kw
