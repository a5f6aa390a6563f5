#include "passes/identities.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "ir/infer.hpp"
#include "ir/numbers.hpp"
#include "ir/op_registry.hpp"
#include "passes/bounds.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

// The logarithm of a type's smallest number, and one less: below it eager's exponential is 0 and its logarithm −∞,
// however it rounds.
double log_of_nothing(DType dtype) {
  const int exponent = dtype == DType::f64 ? -1074 : dtype == DType::f32 ? -149 : dtype == DType::bf16 ? -133 : -24;
  return exponent * std::log(2.0) - 1.0;
}

// Whether each number of `from` is one of `to`.
bool holds_all(DType to, DType from) {
  if (to == from || from == DType::b1) return true;
  if (is_eight_bit_float(from) || is_eight_bit_float(to))
    return is_eight_bit_float(from) && is_floating(to) && !is_eight_bit_float(to);
  const auto digits = [](DType dtype) {
    switch (dtype) {
      case DType::f64: return 53;
      case DType::f32: return 24;
      case DType::f16: return 11;
      case DType::bf16: return 8;
      case DType::i64: return 63;
      case DType::i32: return 31;
      case DType::i16: return 15;
      case DType::i8: return 7;
      case DType::u8: return 8;
      default: return 0;
    }
  };
  if (digits(from) == 0 || digits(to) == 0) return false;
  if (is_floating(from)) return is_floating(to) && size_of(to) >= 4 && size_of(to) > size_of(from);
  if (is_floating(to)) return digits(to) >= digits(from) && (to != DType::f16 || size_of(from) == 1);
  return digits(to) >= digits(from) && to != DType::u8;
}

class Identities {
 public:
  explicit Identities(Graph& graph) : rewriter_(graph), sharing_(graph), reads_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (!node.op.starts_with("aten.") || node.results.size() != 1 || node.results[0] == kNoValue) return false;
      if (const auto rule = rules().find(base_name(node.op)); rule != rules().end() && (this->*rule->second)(node))
        return true;
      bounds_.learn(rewriter_.graph(), node);
      return false;
    });
  }

 private:
  using Rule = bool (Identities::*)(Node&);  // whether the node goes

  static const std::unordered_map<std::string_view, Rule>& rules() {
    static const std::unordered_map<std::string_view, Rule> table = {
        {"relu", &Identities::clamp},
        {"clamp", &Identities::clamp},
        {"abs", &Identities::abs},
        {"leaky_relu", &Identities::leaky_relu},
        {"floor", &Identities::round},
        {"ceil", &Identities::round},
        {"round", &Identities::round},
        {"trunc", &Identities::round},
        {"sign", &Identities::sign},
        {"maximum", &Identities::twice},
        {"minimum", &Identities::twice},
        {"fmax", &Identities::twice},
        {"fmin", &Identities::twice},
        {"logical_and", &Identities::twice_truth},
        {"logical_or", &Identities::twice_truth},
        {"bitwise_and", &Identities::twice},
        {"bitwise_or", &Identities::twice},
        {"logical_not", &Identities::not_not},
        {"bitwise_not", &Identities::not_not},
        {"where", &Identities::where_of_where},
        {"masked_fill", &Identities::masked_fill},
        {"_to_copy", &Identities::conversion},
        {"mul", &Identities::gated},
        {"add", &Identities::elu_and_one},
        {"log", &Identities::log},
        {"exp", &Identities::exp},
        {"xlogy", &Identities::entropy},
        {"sum", &Identities::sum_of_negative},
        {"mean", &Identities::sum_of_negative},
        {"amax", &Identities::extreme_of_negative},
        {"amin", &Identities::extreme_of_negative},
    };
    return table;
  }

  // --- What rules ask and do ---

  const TensorType& type(ValueId id) const { return rewriter_.type(id); }
  const TensorType& result(const Node& node) const { return type(node.results[0]); }

  // The node that yields `id`, if it is aten.`name`.
  const Node* made_by(ValueId id, std::string_view name) const {
    const Node* producer = id == kNoValue ? nullptr : rewriter_.producer(id);
    return producer && producer->op.starts_with("aten.") && base_name(producer->op) == name &&
                   producer->results.size() == 1
               ? producer
               : nullptr;
  }

  // Nothing but this node reads it: what is computed in its place replaces work and adds none.
  bool is_read_once(ValueId id) const { return reads_.is_once(id); }

  bool is(Node& node, ValueId source, NumericTag tag = NumericTag::kExact) {
    const TensorType &from = type(source), &to = result(node);
    if (from.shape != to.shape || from.dtype != to.dtype || from.device != to.device) return false;
    if (sharing_.merge(rewriter_.graph(), node.results[0], source)) {
      rewriter_.replace(node.results[0], source, tag);
      return true;
    }
    become(node, "clone.default", {{"self", ValueRef{source}}}, tag);
    return false;
  }

  void become(Node& node, std::string op, std::vector<NamedArgument> arguments, NumericTag tag) {
    node.op = "aten." + std::move(op);
    node.arguments = std::move(arguments);
    rewriter_.count(tag);
  }

  bool keeps_type(const Node& node) const {
    const Inference inferred = infer(rewriter_.graph(), node);
    return inferred.problem.empty() && inferred.results.size() == 1 &&
           inferred.results[0].shape == result(node).shape && inferred.results[0].dtype == result(node).dtype;
  }

  // --- Bounds ---

  struct Interval {
    std::optional<double> low, high;
    // As PyTorch has it, min(max(x, low), high): of bounds that cross the upper one wins.
    double of(double x) const {
      if (low) x = std::max(x, *low);
      return high ? std::min(x, *high) : x;
    }
    bool has_zero(bool negative) const {
      return (low && *low == 0.0 && std::signbit(*low) == negative) ||
             (high && *high == 0.0 && std::signbit(*high) == negative);
    }
  };

  // nullopt: other than by numbers that the type holds.
  std::optional<Interval> interval_of(const Node& node) const {
    const DType dtype = result(node).dtype;
    if (!is_floating(dtype) || node.value("self") == kNoValue || type(node.value("self")).dtype != dtype)
      return std::nullopt;
    if (base_name(node.op) == "relu") return Interval{0.0, std::nullopt};
    Interval interval;
    for (auto [name, bound] : {std::pair{"min", &interval.low}, std::pair{"max", &interval.high}}) {
      const Argument* argument = node.find(name);
      if (!argument || std::holds_alternative<None>(*argument)) continue;
      if (!is_number(*argument) || !holds_exactly(dtype, *argument) || std::isnan(as_double(*argument)))
        return std::nullopt;
      *bound = as_double(*argument);
    }
    return interval;
  }

  // clamp(clamp(x)) = clamp(x, f(−∞), f(∞)) with f the two after each other. Exact: f leaves what lies strictly between
  // these alone, and NaN passes. Which of two zeros a maximum chooses is the device's affair, so that all zeros among
  // the bounds must be the same one. clamp(x) = x, or lacks a bound, where x is known to lie within.
  bool clamp(Node& node) {
    auto outer = interval_of(node);
    if (!outer) return false;
    const ValueId self = node.value("self");
    const Node* inner = made_by(self, "clamp");
    if (!inner) inner = made_by(self, "relu");
    if (const auto within = inner ? interval_of(*inner) : std::nullopt) {
      const bool zeros_differ = (outer->has_zero(false) || within->has_zero(false)) &&
                                (outer->has_zero(true) || within->has_zero(true));
      const double low = outer->of(within->of(-kInfinity)), high = outer->of(within->of(kInfinity));
      if (!zeros_differ) {
        const Interval both{low == -kInfinity ? std::nullopt : std::optional(low),
                            high == kInfinity ? std::nullopt : std::optional(high)};
        if (both.low == within->low && both.high == within->high) return is(node, self);
        return bounded(node, inner->value("self"), both);
      }
    }
    const Bound bound = bounds_.of(self);
    const auto lies_within = [](double inner_bound, double outer_bound) {
      return outer_bound == 0.0 ? inner_bound > 0.0 : inner_bound >= outer_bound;
    };
    const bool is_relu = outer->low == 0.0 && !std::signbit(*outer->low);
    if (outer->low && (lies_within(bound.low, *outer->low) || (is_relu && bound.relu_changes_nothing())))
      outer->low.reset();
    if (outer->high && lies_within(-bound.high, -*outer->high)) outer->high.reset();
    const auto before = interval_of(node);
    return outer->low != before->low || outer->high != before->high ? bounded(node, self, *outer) : false;
  }

  bool bounded(Node& node, ValueId self, const Interval& interval) {
    if (!interval.low && !interval.high) return is(node, self);
    if (interval.low == 0.0 && !std::signbit(*interval.low) && !interval.high) {
      become(node, "relu.default", {{"self", ValueRef{self}}}, NumericTag::kExact);
      return false;
    }
    std::vector<NamedArgument> arguments = {{"self", ValueRef{self}}};
    if (interval.low) arguments.push_back({"min", *interval.low});
    if (interval.high) arguments.push_back({"max", *interval.high});
    become(node, "clamp.default", std::move(arguments), NumericTag::kExact);
    return false;
  }

  // abs(−x) = abs(x); abs(x) = x for what is neither negative nor −0.
  bool abs(Node& node) {
    const ValueId self = node.value("self");
    if (self == kNoValue || !is_floating(result(node).dtype)) return false;
    if (bounds_.of(self).never_below_zero()) return is(node, self);
    const Node* inner = made_by(self, "neg");
    if (!inner || inner->value("self") == kNoValue) return false;
    become(node, "abs.default", {{"self", ValueRef{inner->value("self")}}}, NumericTag::kExact);
    return false;
  }

  // 0 · slope is 0 only for a slope that is neither negative nor beyond all bounds.
  bool leaky_relu(Node& node) {
    const ValueId self = node.value("self");
    const double slope = node.number("negative_slope", 0.01);
    return self != kNoValue && !std::signbit(slope) && std::isfinite(slope) && bounds_.of(self).never_below_zero() &&
           is(node, self);
  }

  bool round(Node& node) {
    const ValueId self = node.value("self");
    return self != kNoValue && node.integer("decimals", 0) == 0 && bounds_.of(self).is_whole && is(node, self);
  }

  // PyTorch's sign(NaN) is 0, and so is that one's.
  bool sign(Node& node) { return made_by(node.value("self"), "sign") && is(node, node.value("self")); }

  // --- Truths and choices ---

  bool twice(Node& node) {
    return node.value("self") != kNoValue && node.value("self") == node.value("other") && is(node, node.value("self"));
  }

  bool twice_truth(Node& node) {
    return node.value("self") != kNoValue && type(node.value("self")).dtype == DType::b1 && twice(node);
  }

  bool not_not(Node& node) {
    const Node* inner = made_by(node.value("self"), base_name(node.op));
    return inner && inner->value("self") != kNoValue && is(node, inner->value("self"));
  }

  // where(m, where(m, a, b), c) = where(m, a, c), where(m, a, where(m, b, c)) = where(m, a, c), where(not m, a, b) =
  // where(m, b, a), where(m, a, a) = a
  bool where_of_where(Node& node) {
    const ValueId condition = node.value("condition");
    const Argument *chosen = node.find("self"), *otherwise = node.find("other");
    if (condition == kNoValue || !chosen || !otherwise) return false;
    if (*chosen == *otherwise && node.value("self") != kNoValue) return is(node, node.value("self"));
    Argument taken = *chosen, left = *otherwise;
    ValueId asked = condition;
    if (const Node* inner = made_by(node.value("self"), "where"); inner && inner->value("condition") == condition)
      taken = *inner->find("self");
    if (const Node* inner = made_by(node.value("other"), "where"); inner && inner->value("condition") == condition)
      left = *inner->find("other");
    if (const Node* inner = made_by(condition, "logical_not");
        inner && inner->value("self") != kNoValue && type(inner->value("self")).dtype == DType::b1) {
      asked = inner->value("self");
      std::swap(taken, left);
    }
    if (asked == condition && taken == *chosen && left == *otherwise) return false;
    const auto is_tensor = [](const Argument& argument) { return std::holds_alternative<ValueRef>(argument); };
    if (!is_tensor(taken) && !is_tensor(left)) return false;
    Node rewritten = node;
    rewritten.op = is_tensor(taken) ? is_tensor(left) ? "aten.where.self" : "aten.where.ScalarOther"
                                    : "aten.where.ScalarSelf";
    rewritten.arguments = {{"condition", ValueRef{asked}}, {"self", taken}, {"other", left}};
    if (!keeps_type(rewritten)) return false;
    node = std::move(rewritten);
    rewriter_.count(NumericTag::kExact);
    return false;
  }

  // What the same mask fills again need not be filled before.
  bool masked_fill(Node& node) {
    const Node* inner = made_by(node.value("self"), "masked_fill");
    if (!inner || inner->value("mask") != node.value("mask") || inner->value("self") == kNoValue ||
        type(inner->value("self")).shape != result(node).shape)
      return false;
    node.set("self", ValueRef{inner->value("self")});
    rewriter_.count(NumericTag::kExact);
    return false;
  }

  // to(to(x, wide), narrow) = to(x, narrow), where the wide type holds every number of x's.
  bool conversion(Node& node) {
    const ValueId self = node.value("self");
    const Node* inner = made_by(self, "_to_copy");
    const ValueId origin = inner ? inner->value("self") : kNoValue;
    if (origin == kNoValue || node.find("memory_format") || type(origin).device != result(node).device ||
        type(self).device != result(node).device)
      return false;
    if (type(self).dtype == type(origin).dtype || !same_places(type(self), type(origin)) ||
        !holds_all(type(self).dtype, type(origin).dtype))
      return false;
    if (type(origin).dtype == result(node).dtype) return is(node, origin);
    if (is_floating(type(origin).dtype) && is_integral(result(node).dtype))
      return false;  // what becomes of numbers out of range depends on the type that they come in
    if (is_eight_bit_float(type(origin).dtype) || is_eight_bit_float(result(node).dtype))
      return false;  // PyTorch converts them by way of f32
    node.set("self", ValueRef{origin});
    rewriter_.count(NumericTag::kExact);
    return false;
  }

  static bool same_places(const TensorType& left, const TensorType& right) {
    return left.shape == right.shape && left.strides == right.strides;
  }

  // --- Formulas that PyTorch has an operator for ---

  // x·sigmoid(x) = silu(x), x·tanh(softplus(x)) = mish(x)
  bool gated(Node& node) {
    const ValueId self = node.value("self"), other = node.value("other");
    if (self == kNoValue || other == kNoValue || !is_floating(result(node).dtype)) return false;
    for (const auto& [input, gate] : {std::pair{self, other}, std::pair{other, self}}) {
      if (type(input).shape != result(node).shape || type(input).dtype != result(node).dtype ||
          type(gate).dtype != result(node).dtype || !is_read_once(gate))
        continue;
      if (const Node* sigmoid = made_by(gate, "sigmoid"); sigmoid && sigmoid->value("self") == input) {
        become(node, "silu.default", {{"self", ValueRef{input}}}, NumericTag::kReassociates);
        return false;
      }
      const Node* tanh = made_by(gate, "tanh");
      const Node* softplus = tanh && is_read_once(tanh->value("self")) ? made_by(tanh->value("self"), "softplus")
                                                                       : nullptr;
      if (softplus && softplus->value("self") == input && softplus->number("beta", 1.0) == 1.0 &&
          softplus->number("threshold", 20.0) >= 20.0) {
        become(node, "mish.default", {{"self", ValueRef{input}}}, NumericTag::kReassociates);
        return false;
      }
    }
    return false;
  }

  // elu(x) + 1 = x + 1 above 0 and exp(x) below, where 1 + (exp(x) − 1) has lost digits; 0 where it has lost them all,
  // as in eager: what divides by it is to find the same infinities.
  bool elu_and_one(Node& node) {
    const ValueId self = node.value("self");
    const DType dtype = result(node).dtype;
    const Node* elu = made_by(self, "elu");
    const ValueId input = elu ? elu->value("self") : kNoValue;
    if (input == kNoValue || node.value("other") != kNoValue || node.number("other", 0.0) != 1.0 ||
        node.number("alpha", 1.0) != 1.0 || elu->number("alpha", 1.0) != 1.0 || elu->number("scale", 1.0) != 1.0 ||
        elu->number("input_scale", 1.0) != 1.0 || !is_floating(dtype) || is_eight_bit_float(dtype) ||
        type(input).dtype != dtype || type(self).dtype != dtype || !is_read_once(self))
      return false;
    const double half_place_below_one = (dtype == DType::f64 ? -54 : -25) * std::log(2.0);
    const Term x(rewriter_, input);
    const Term below = where(less(x, half_place_below_one), 0.0, x.apply("exp"));
    rewriter_.adopt(node.results[0], where(less_equal(x, 0.0), below, x + 1.0).id(), NumericTag::kReassociates);
    return true;
  }

  // log(softmax(x)) = log_softmax(x), log(sigmoid(x)) = log_sigmoid(x); −∞ where the operand's numbers end, as in
  // eager.
  bool log(Node& node) {
    const ValueId self = node.value("self");
    const Node* softmax = made_by(self, "softmax");
    const Node* sigmoid = made_by(self, "sigmoid");
    if (self == kNoValue || type(self).dtype != result(node).dtype || (!softmax && !sigmoid)) return false;
    const ValueId input = (softmax ? softmax : sigmoid)->value("self");
    if (input == kNoValue || type(input).dtype != result(node).dtype || is_eight_bit_float(result(node).dtype))
      return false;
    if (sigmoid && !is_read_once(self)) return false;
    Term logarithm(rewriter_, input);
    if (softmax)
      logarithm = Term(
          rewriter_, rewriter_.emit("aten.log_softmax.int", {{"self", ValueRef{input}}, {"dim", *softmax->find("dim")}},
                                    type(self), "log_softmax"));
    else logarithm = logarithm.apply("log_sigmoid");
    rewriter_.adopt(node.results[0],
                    where(less(logarithm, log_of_nothing(result(node).dtype)), -kInfinity, logarithm).id(),
                    NumericTag::kReassociates);
    return true;
  }

  // p·log(p) = p·log_softmax(x) with p = softmax(x), and 0 where p is
  bool entropy(Node& node) {
    const ValueId self = node.value("self");
    const Node* softmax = self == node.value("other") ? made_by(self, "softmax") : nullptr;
    const ValueId input = softmax ? softmax->value("self") : kNoValue;
    if (input == kNoValue || type(input).dtype != result(node).dtype) return false;
    const Term logarithm(
        rewriter_, rewriter_.emit("aten.log_softmax.int", {{"self", ValueRef{input}}, {"dim", *softmax->find("dim")}},
                                  type(self), "log_softmax"));
    const Term share(rewriter_, self);
    rewriter_.adopt(node.results[0], where(equal(share, 0.0), 0.0, share * logarithm).id(), NumericTag::kReassociates);
    return true;
  }

  // exp(log_softmax(x)) = softmax(x)
  bool exp(Node& node) {
    const ValueId self = node.value("self");
    const Node* inner = made_by(self, "log_softmax");
    if (!inner || inner->value("self") == kNoValue || !inner->find("dim") ||
        type(inner->value("self")).dtype != result(node).dtype)
      return false;
    become(node, "softmax.int", {{"self", ValueRef{inner->value("self")}}, {"dim", *inner->find("dim")}},
           NumericTag::kReassociates);
    return false;
  }

  // --- Folds of negatives ---

  // Σ −x = 0 − Σ x, and so the mean: rounding is symmetric, and a sum of zeros is +0 either way.
  bool sum_of_negative(Node& node) {
    const Node* inner = made_by(node.value("self"), "neg");
    if (!inner || inner->value("self") == kNoValue || !is_floating(result(node).dtype) ||
        !is_read_once(node.value("self")))
      return false;
    return folded(node, inner->value("self"), node.op, [](const Term& total) { return Term(0.0) - total; });
  }

  // max(−x) = −min(x)
  bool extreme_of_negative(Node& node) {
    const Node* inner = made_by(node.value("self"), "neg");
    if (!inner || inner->value("self") == kNoValue || !is_floating(result(node).dtype) ||
        !is_read_once(node.value("self")))
      return false;
    return folded(node, inner->value("self"), base_name(node.op) == "amax" ? "aten.amin.default" : "aten.amax.default",
                  [](const Term& extreme) { return -extreme; });
  }

  bool folded(Node& node, ValueId operand, std::string op, Term (*finish)(const Term&)) {
    std::vector<NamedArgument> arguments = node.arguments;
    for (auto& argument : arguments)
      if (argument.name == "self") argument.value = ValueRef{operand};
    const ValueId fold = rewriter_.emit(std::move(op), std::move(arguments));
    rewriter_.adopt(node.results[0], finish(Term(rewriter_, fold)).id(), NumericTag::kExact);
    return true;
  }

  Rewriter rewriter_;
  Sharing sharing_;
  Reads reads_;
  Bounds bounds_;
};

}  // namespace

RewriteCounts identities(Graph& graph) { return Identities(graph).run(); }

}  // namespace kw
