#include "passes/broadcasts.hpp"

#include <cmath>
#include <numeric>
#include <unordered_map>

#include "ir/op_registry.hpp"
#include "ir/promote.hpp"
#include "passes/equal_axes.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

constexpr int64_t kHighestPower = 4;  // of an unrolled product

// A fold over axes along some of which the operand's elements are the same.
struct EqualFold {
  Rewriter& rewriter;
  const Node& node;
  AxisSet equal;        // the axes that are folded and along which nothing changes
  int64_t times = 1;    // how many equal elements that makes of each one
  bool is_only = true;  // nothing else is folded

  const TensorType& result() const { return rewriter.type(node.results[0]); }
  ValueId self() const { return node.value("self"); }

  Term as(const Term& term, DType dtype) const {
    return term.type().dtype == dtype ? term : term.call("_to_copy.default", {{"dtype", Argument(dtype)}});
  }
  Term shaped(const Term& term) const {
    return term.type().shape == result().shape ? term : view(term, result().shape);
  }

  // One of each run of equal elements, in the type that the fold works in.
  Term one() const { return Term(rewriter, narrowed(rewriter, self(), equal)); }
  Term one_as(DType dtype) const { return as(one(), dtype); }

  // The same fold of those; `dtype` is in place of the call's own, where it has one.
  Term fold(const Term& operand, std::optional<DType> dtype = std::nullopt) const {
    if (is_only) return shaped(dtype ? as(operand, *dtype) : operand);
    Node same = node;
    same.set("self", ValueRef{operand.id()});
    if (dtype) same.set("dtype", *dtype);
    return {rewriter, rewriter.emit(same.op, std::move(same.arguments))};
  }

  // Where 16-bit floats are folded they are widened first.
  DType working() const { return is_narrow_float(result().dtype) ? DType::f32 : result().dtype; }
};

using Rule = std::optional<Term> (*)(const EqualFold&);

// A sum starts from +0: of −0 alone it is +0, too.
Term sum_of_one(const EqualFold& fold) {
  const Term one = fold.shaped(fold.one_as(fold.result().dtype));
  if (!is_floating(fold.result().dtype)) return one;
  const Node* made = fold.rewriter.producer(fold.self());
  const bool is_sum = made && made->op == "aten.add.Tensor" && made->value("other") == kNoValue &&
                      made->number("other", 1.0) == 0.0 && !std::signbit(made->number("other", 0.0));
  return is_sum ? one : one + 0.0;
}

// Integers wrap in either form. Floats: n·x is infinite or NaN where the sum is.
std::optional<Term> sum(const EqualFold& fold) {
  if (fold.times == 1) return sum_of_one(fold);
  const Term total = fold.fold(fold.one(), fold.working());
  if (!is_floating(fold.working())) return total * fold.times;
  return fold.as(total * static_cast<double>(fold.times), fold.result().dtype);
}

std::optional<Term> mean(const EqualFold& fold) {
  if (fold.times == 1) return sum_of_one(fold);
  return fold.is_only ? fold.fold(fold.one_as(fold.result().dtype)) : fold.fold(fold.one());
}

std::optional<Term> prod(const EqualFold& fold) {
  if (fold.times > kHighestPower) return std::nullopt;
  const Term product = fold.fold(fold.one(), fold.working());
  Term power = product;
  for (int64_t i = 1; i < fold.times; ++i) power = power * product;
  return fold.as(power, fold.result().dtype);
}

std::optional<Term> extreme(const EqualFold& fold) { return fold.fold(fold.one()); }

std::optional<Term> truth(const EqualFold& fold) {
  if (fold.result().dtype != DType::b1) return std::nullopt;
  if (!fold.is_only) return fold.fold(fold.one());
  const Term one = fold.shaped(fold.one());
  return one.type().dtype == DType::b1 ? one : not_equal(one, int64_t{0});
}

std::optional<Term> place_of_extreme(const EqualFold& fold) {
  if (!fold.is_only) return std::nullopt;
  const TensorType& type = fold.result();
  return Term(fold.rewriter, fold.rewriter.emit("aten.full.default",
                                                {{"size", type.shape},
                                                 {"fill_value", int64_t{0}},
                                                 {"dtype", type.dtype},
                                                 {"device", Keyword{"device", type.device}}},
                                                type, "first"));
}

// Σ n·(x − µ)² / (n·m − c) = Σ (x − µ)² / (m − c / n). Of equal elements alone it is x − x, which is NaN where x is
// infinite, or 0 / 0.
std::optional<Term> variance(const EqualFold& fold) {
  const Argument* given = fold.node.find("correction");
  const double correction = given && !std::holds_alternative<None>(*given) ? fold.node.number("correction", 1.0) : 1.0;
  if (fold.is_only) {
    const Term one = fold.shaped(fold.one()), nothing = one - one;
    return static_cast<double>(fold.times) > correction ? nothing : nothing / 0.0;
  }
  Node same = fold.node;
  same.set("self", ValueRef{fold.one().id()});
  same.set("correction", correction / static_cast<double>(fold.times));
  return Term(fold.rewriter, fold.rewriter.emit(same.op, std::move(same.arguments)));
}

// log Σ n·eˣ = log Σ eˣ + log n
std::optional<Term> logsumexp(const EqualFold& fold) {
  if (!is_floating(fold.rewriter.type(fold.self()).dtype)) return std::nullopt;
  if (fold.times == 1) return sum_of_one(fold);  // log 1 = +0
  return fold.as(fold.fold(fold.one_as(fold.working())) + std::log(static_cast<double>(fold.times)),
                 fold.result().dtype);
}

// (Σ n·|x|ᵖ)^(1/p) = n^(1/p) · (Σ |x|ᵖ)^(1/p)
std::optional<Term> vector_norm(const EqualFold& fold) {
  const double order = fold.node.number("ord", 2.0);
  if (!(std::abs(order) >= 1.0) || !is_floating(fold.result().dtype) ||
      fold.rewriter.type(fold.self()).dtype != fold.result().dtype)
    return std::nullopt;
  const Term one = fold.one_as(fold.working());
  const Term length = fold.is_only ? fold.shaped(one).apply("abs") : fold.fold(one);
  return fold.as(std::isinf(order) ? length : length * std::pow(static_cast<double>(fold.times), 1.0 / order),
                 fold.result().dtype);
}

// Of one element: x − log exp x, which is NaN where x is NaN or infinite, and its exponential.
std::optional<Term> log_softmax(const EqualFold& fold) {
  if (fold.times != 1 || !is_floating(fold.result().dtype)) return std::nullopt;
  const Term one = fold.one_as(fold.result().dtype);
  return one - one;
}

std::optional<Term> softmax(const EqualFold& fold) {
  const std::optional<Term> logarithm = log_softmax(fold);
  return logarithm ? std::optional(*logarithm + 1.0) : std::nullopt;
}

struct Row {
  Rule rule;
  NumericTag tag;
  NumericTag of_one = NumericTag::kExact;  // where one element is folded
};

const std::unordered_map<std::string_view, Row>& rules() {
  using enum NumericTag;
  static const std::unordered_map<std::string_view, Row> table = {
      {"sum.dim_IntList", {sum, kReassociates}},
      {"mean.dim", {mean, kReassociates}},
      {"prod.dim_int", {prod, kReassociates}},
      {"prod.default", {prod, kReassociates}},
      {"amax.default", {extreme, kExact}},
      {"amin.default", {extreme, kExact}},
      {"any.dim", {truth, kExact}},
      {"all.dim", {truth, kExact}},
      {"any.default", {truth, kExact}},
      {"all.default", {truth, kExact}},
      {"any.dims", {truth, kExact}},
      {"all.dims", {truth, kExact}},
      {"argmax.default", {place_of_extreme, kExact}},
      {"argmin.default", {place_of_extreme, kExact}},
      {"var.correction", {variance, kReassociates}},
      {"logsumexp.default", {logsumexp, kReassociates}},
      {"linalg_vector_norm.default", {vector_norm, kReassociates, kReassociates}},
      {"softmax.int", {softmax, kExact}},
      {"log_softmax.int", {log_softmax, kExact}},
  };
  return table;
}

}  // namespace

RewriteCounts broadcasts(Graph& graph) {
  const EqualAxes equal(graph);
  Sharing sharing(graph);
  Rewriter rewriter(graph);
  return rewriter.run([&](Node& node) {
    if (!node.op.starts_with("aten.") || node.results.size() != 1 || node.results[0] == kNoValue) return false;
    const auto row = rules().find(std::string_view(node.op).substr(5));
    const ValueId self = node.value("self");
    if (row == rules().end() || self == kNoValue || rewriter.type(self).elements() == 0) return false;
    const Shape& shape = rewriter.type(self).shape;
    const AxisSet& same = equal.of(self);
    if (same.size() != shape.size()) return false;
    IntList axes = node.integers("dim");
    if (axes.empty()) {
      if (row->second.rule == truth && node.find("dim")) return false;  // any(dim=[]) folds nothing
      axes.resize(shape.size());
      std::iota(axes.begin(), axes.end(), 0);
    }
    EqualFold fold{rewriter, node, AxisSet(shape.size(), false)};
    for (const int64_t given : axes) {
      const auto axis = normalise_axis(given, static_cast<int64_t>(shape.size()));
      if (!axis || *axis >= static_cast<int64_t>(shape.size())) return false;
      if (shape[*axis] == 1) continue;
      fold.equal[*axis] = same[*axis];
      if (same[*axis]) fold.times *= shape[*axis];
      else fold.is_only = false;
    }
    if (fold.times == 1 && !fold.is_only) return false;
    const std::optional<Term> term = row->second.rule(fold);
    if (!term) return false;
    const NumericTag tag = fold.times == 1 ? row->second.of_one : row->second.tag;
    const ValueId with = term->id();
    // What was there already, or a view of it, has strides of its own.
    const Node* last = rewriter.producer(with);
    const bool is_new = static_cast<size_t>(with) >= equal.size() && last && class_of(last->op) != OpClass::kView;
    if (is_new) {
      rewriter.adopt(node.results[0], with, tag);
    } else if (sharing.merge(rewriter.graph(), node.results[0], with)) {
      rewriter.replace(node.results[0], with, tag);
    } else {
      rewriter.define(node.results[0], "aten.clone.default", {{"self", ValueRef{with}}});
      rewriter.count(tag);
    }
    return true;
  });
}

}  // namespace kw
