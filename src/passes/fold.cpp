#include "passes/fold.hpp"

#include <bit>
#include <cmath>
#include <unordered_map>

#include "ir/infer.hpp"
#include "ir/numbers.hpp"
#include "ir/op_registry.hpp"
#include "ir/promote.hpp"

namespace kw {
namespace {

// How an operator is spelled when an operand is a number.
struct NumberForm {
  std::string_view argument, op;  // the operand that may be a number; the overload that takes it
  bool swapped = false;           // the operands change places
};

const std::unordered_multimap<std::string_view, NumberForm>& number_forms() {
  static const std::unordered_multimap<std::string_view, NumberForm> forms = {
      {"add.Tensor", {"other", "add.Tensor"}},
      {"add.Tensor", {"self", "add.Tensor", true}},
      {"mul.Tensor", {"other", "mul.Tensor"}},
      {"mul.Tensor", {"self", "mul.Tensor", true}},
      {"sub.Tensor", {"other", "sub.Tensor"}},
      {"sub.Tensor", {"self", "sub.Tensor"}},
      {"div.Tensor", {"other", "div.Tensor"}},
      {"div.Tensor", {"self", "div.Tensor"}},
      {"div.Tensor_mode", {"other", "div.Tensor_mode"}},
      {"div.Tensor_mode", {"self", "div.Tensor_mode"}},
      {"eq.Tensor", {"other", "eq.Scalar"}},
      {"eq.Tensor", {"self", "eq.Scalar", true}},
      {"ne.Tensor", {"other", "ne.Scalar"}},
      {"ne.Tensor", {"self", "ne.Scalar", true}},
      {"lt.Tensor", {"other", "lt.Scalar"}},
      {"lt.Tensor", {"self", "gt.Scalar", true}},
      {"le.Tensor", {"other", "le.Scalar"}},
      {"le.Tensor", {"self", "ge.Scalar", true}},
      {"gt.Tensor", {"other", "gt.Scalar"}},
      {"gt.Tensor", {"self", "lt.Scalar", true}},
      {"ge.Tensor", {"other", "ge.Scalar"}},
      {"ge.Tensor", {"self", "le.Scalar", true}},
      {"pow.Tensor_Tensor", {"exponent", "pow.Tensor_Scalar"}},
      {"pow.Tensor_Tensor", {"self", "pow.Scalar"}},
      {"remainder.Tensor", {"other", "remainder.Scalar"}},
      {"fmod.Tensor", {"other", "fmod.Scalar"}},
      {"bitwise_and.Tensor", {"other", "bitwise_and.Scalar"}},
      {"bitwise_or.Tensor", {"other", "bitwise_or.Scalar"}},
      {"bitwise_xor.Tensor", {"other", "bitwise_xor.Scalar"}},
      {"where.self", {"self", "where.ScalarSelf"}},
      {"where.self", {"other", "where.ScalarOther"}},
      {"masked_fill.Tensor", {"value", "masked_fill.Scalar"}},
  };
  return forms;
}

std::optional<Argument> arithmetic(std::string_view op, const Argument& left, const Argument& right, DType dtype) {
  if (is_integral(dtype)) {
    const auto *a = std::get_if<int64_t>(&left), *b = std::get_if<int64_t>(&right);
    if (!a || !b) return std::nullopt;
    int64_t out = 0;
    const bool overflows = op == "add.Tensor"   ? __builtin_add_overflow(*a, *b, &out)
                           : op == "sub.Tensor" ? __builtin_sub_overflow(*a, *b, &out)
                           : op == "mul.Tensor" ? __builtin_mul_overflow(*a, *b, &out)
                                                : true;
    return overflows ? std::nullopt : number_in(dtype, Argument(out));
  }
  if (dtype != DType::f32 && dtype != DType::f64) return std::nullopt;
  // In double and then rounded: one operation on two floats rounds to the same float (2·24 + 2 ≤ 53).
  const double a = as_double(left), b = as_double(right);
  if (op == "add.Tensor") return number_in(dtype, Argument(a + b));
  if (op == "sub.Tensor") return number_in(dtype, Argument(a - b));
  if (op == "mul.Tensor") return number_in(dtype, Argument(a * b));
  if (op == "div.Tensor") return number_in(dtype, Argument(a / b));
  return std::nullopt;
}

std::optional<bool> comparison(std::string_view name, double left, double right) {
  if (name == "eq") return left == right;
  if (name == "ne") return left != right;
  if (name == "lt") return left < right;
  if (name == "le") return left <= right;
  if (name == "gt") return left > right;
  if (name == "ge") return left >= right;
  return std::nullopt;
}

class Folder {
 public:
  explicit Folder(Graph& graph) : rewriter_(graph), sharing_(graph), constants_(graph.values.size()) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (!node.op.starts_with("aten.") || node.results.size() != 1 || node.results[0] == kNoValue) return false;
      substitute(node);
      if (identity(node)) return true;
      learn(node);
      return false;
    });
  }

 private:
  const Argument* constant(ValueId id) const {
    return id != kNoValue && static_cast<size_t>(id) < constants_.size() && constants_[id] ? &*constants_[id] : nullptr;
  }

  // The number that an argument is, or that its tensor holds everywhere.
  const Argument* number_of(const Node& node, std::string_view name) const {
    const Argument* argument = node.find(name);
    if (!argument) return nullptr;
    if (is_number(*argument)) return argument;
    return constant(node.value(name));
  }

  bool keeps_type(const Node& node) const {
    const Inference inferred = infer(rewriter_.graph(), node);
    const TensorType& result = rewriter_.type(node.results[0]);
    return inferred.problem.empty() && inferred.results.size() == 1 && inferred.results[0].shape == result.shape &&
           inferred.results[0].dtype == result.dtype;
  }

  // A constant tensor as an operand becomes a number, if the rest still gives the result its shape and element type,
  // and the type in which PyTorch computes holds the number exactly.
  void substitute(Node& node) {
    const auto [from, to] = number_forms().equal_range(std::string_view(node.op).substr(5));
    for (auto form = from; form != to; ++form) {
      const auto& [argument, op, swapped] = form->second;
      const Argument* number = constant(node.value(argument));
      if (!number || (swapped && (node.find("alpha") || node.value("other") == kNoValue))) continue;
      const auto common = result_type(rewriter_.graph(), node, {"self", "other", "exponent"});
      if (!common || !holds_exactly(*common, *number)) continue;
      Node rewritten = node;
      rewritten.op = "aten." + std::string(op);
      rewritten.set(std::string(argument), *number);
      if (swapped) {
        rewritten.set("self", *node.find("other"));
        rewritten.set("other", *number);
      }
      if (!keeps_type(rewritten)) continue;
      node = std::move(rewritten);
      rewriter_.count(NumericTag::kExact);
      return;  // the two operands are not both numbers
    }
  }

  // `source` is what the node computes: the node goes, or becomes a copy where one is needed.
  bool is(Node& node, ValueId source) {
    const TensorType &from = rewriter_.type(source), &to = rewriter_.type(node.results[0]);
    if (from.shape != to.shape || from.dtype != to.dtype || from.device != to.device) return false;
    if (sharing_.merge(rewriter_.graph(), node.results[0], source)) {
      rewriter_.replace(node.results[0], source);
      return true;
    }
    node.op = "aten.clone.default";
    node.arguments = {{"self", ValueRef{source}}};
    rewriter_.count(NumericTag::kExact);
    return false;
  }

  bool identity(Node& node) {
    const std::string_view op = std::string_view(node.op).substr(5);
    const ValueId self = node.value("self");
    const Argument *left = number_of(node, "self"), *right = number_of(node, "other");
    const DType dtype = rewriter_.type(node.results[0]).dtype;
    const bool real = is_floating(dtype);
    const auto equals = [](const Argument* number, double value) {
      return number && std::bit_cast<uint64_t>(as_double(*number)) == std::bit_cast<uint64_t>(value);
    };
    if (op == "mul.Tensor" && self != kNoValue && equals(right, 1.0)) return is(node, self);
    if (op == "mul.Tensor" && equals(left, 1.0) && node.value("other") != kNoValue)
      return is(node, node.value("other"));
    if (op == "div.Tensor" && self != kNoValue && real && equals(right, 1.0)) return is(node, self);
    // −0 + 0 is +0 and −0 − (−0) is +0: of the zeros only −0 may be added and only +0 subtracted.
    const bool plain = !node.find("alpha");
    if (op == "add.Tensor" && self != kNoValue && plain && equals(right, real ? -0.0 : 0.0)) return is(node, self);
    if (op == "sub.Tensor" && self != kNoValue && plain && equals(right, 0.0)) return is(node, self);
    if (op == "pow.Tensor_Scalar" && self != kNoValue && equals(node.find("exponent"), 1.0)) return is(node, self);
    if (op == "neg.default") {
      const Node* inner = rewriter_.producer(self);
      if (inner && inner->op == node.op && inner->value("self") != kNoValue) return is(node, inner->value("self"));
    }
    if (op.starts_with("where.")) {
      const Argument* condition = constant(node.value("condition"));
      const ValueId chosen = condition ? node.value(as_double(*condition) != 0.0 ? "self" : "other") : kNoValue;
      if (chosen != kNoValue) return is(node, chosen);
    }
    if (op == "div.Tensor" && right && self != kNoValue && (dtype == DType::f32 || dtype == DType::f64))
      return by_power_of_two(node, *right, dtype);
    return false;
  }

  // x / 2ᵏ and x · 2⁻ᵏ are the same number, rounded once.
  bool by_power_of_two(Node& node, const Argument& divisor, DType dtype) {
    const double value = as_double(divisor);
    int exponent = 0;
    if (!std::isfinite(value) || std::abs(std::frexp(value, &exponent)) != 0.5 ||
        std::abs(exponent) > (dtype == DType::f32 ? 120 : 1000))
      return false;
    if (std::get_if<ValueRef>(node.find("other"))) return false;  // a tensor that could not become a number
    node.op = "aten.mul.Tensor";
    node.set("other", 1.0 / value);
    rewriter_.count(NumericTag::kExact);
    return false;
  }

  void learn(Node& node) {
    const ValueId result = node.results[0];
    const std::optional<Argument> number = value_of(node);
    if (!number) return;
    if (constants_.size() <= static_cast<size_t>(result)) constants_.resize(result + 1);
    constants_[result] = number;
    // A view costs nothing as it is; anything else that is now known is filled in.
    if (node.op == "aten.full.default" || class_of(node.op) == OpClass::kView) return;
    const TensorType& type = rewriter_.type(result);
    node.op = "aten.full.default";
    node.arguments = {{"size", type.shape},
                      {"fill_value", *number},
                      {"dtype", type.dtype},
                      {"device", Keyword{"device", type.device}}};
    rewriter_.count(NumericTag::kExact);
  }

  std::optional<Argument> value_of(const Node& node) const {
    const std::string_view op = std::string_view(node.op).substr(5), name = base_name(node.op);
    const DType dtype = rewriter_.type(node.results[0]).dtype;
    if (op == "full.default") {
      const Argument* number = node.find("fill_value");
      return number && is_number(*number) ? number_in(dtype, *number) : std::nullopt;
    }
    const Argument* self = number_of(node, "self");
    if (!self) return std::nullopt;
    const bool moves = class_of(node.op) == OpClass::kView && name != "view_as_real" && name != "as_strided" &&
                       !(name == "view" && node.find("dtype"));
    if (moves || name == "clone" || name == "_to_copy" || name == "flip" || name == "repeat")
      return number_in(dtype, *self);
    if (name == "neg" && (dtype == DType::f32 || dtype == DType::f64)) return Argument(-as_double(*self));
    if (name == "logical_not") return Argument(as_double(*self) == 0.0);
    const Argument* other = number_of(node, "other");
    if (!other) return std::nullopt;
    const auto common = result_type(rewriter_.graph(), node, {"self", "other"});
    if (!common || !holds_exactly(*common, *self) || !holds_exactly(*common, *other)) return std::nullopt;
    if (const auto truth = comparison(name, as_double(*self), as_double(*other)))
      return is_floating(*common) ? std::optional(Argument(*truth)) : std::nullopt;
    return node.find("alpha") || *common != dtype ? std::nullopt : arithmetic(op, *self, *other, dtype);
  }

  Rewriter rewriter_;
  Sharing sharing_;
  std::vector<std::optional<Argument>> constants_;  // per value: what it holds everywhere
};

}  // namespace

RewriteCounts fold(Graph& graph) { return Folder(graph).run(); }

}  // namespace kw
