#include "passes/exponents.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "ir/op_registry.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

// Beyond, an exponential in f32 is 0 or infinite whatever is added to its exponent.
constexpr double kLargestExponent = 128.0;

class Exponents {
 public:
  explicit Exponents(Graph& graph) : rewriter_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (node.op != "aten.exp.default" || rewriter_.type(node.results[0]).dtype != DType::f32) return false;
      const ValueId exponent = node.value("self");
      if (!holds_sums(exponent)) return false;
      rewriter_.adopt(node.results[0], exponential(in_double(exponent)).id(), NumericTag::kReassociates);
      return true;
    });
  }

 private:
  // exp(x) of what double precision holds, in single: exp(high) · (1 + low), where high + low is x. GPUs have no
  // exponential in double precision, and its polynomials take many times as long.
  Term exponential(ValueId id) {
    const auto as = [](const Term& term, DType dtype) {
      return term.call("_to_copy.default", {{"dtype", Argument(dtype)}});
    };
    const Term wide(rewriter_, id), high = as(wide, DType::f32), rest = as(wide - as(high, DType::f64), DType::f32),
                                    low = where(less(high.apply("abs"), Term(kLargestExponent)), rest, Term(0.0));
    return high.apply("exp") * (low + Term(1.0));
  }

  // A node that passes a sum on: nullptr where the value is not one's f32 result.
  const Node* passes_on(ValueId id) const {
    const Node* node = rewriter_.producer(id);
    if (node == nullptr || !node->op.starts_with("aten.") || node->results.size() != 1 ||
        rewriter_.type(id).dtype != DType::f32)
      return nullptr;
    constexpr std::array kNames = {
        "add", "cat", "clone", "constant_pad_nd", "cumsum", "div", "flip", "masked_fill", "mul", "neg", "sub", "where"};
    const bool known = std::find(kNames.begin(), kNames.end(), base_name(node->op)) != kNames.end();
    if (!known && class_of(node->op) != OpClass::kView) return nullptr;
    return node->text("rounding_mode").empty() ? node : nullptr;
  }

  bool holds_sums(ValueId id) {
    if (const auto known = holds_sums_.find(id); known != holds_sums_.end()) return known->second;
    bool holds = false;
    if (const Node* node = passes_on(id)) {
      holds = base_name(node->op) == "cumsum";
      if (!holds) for_each_operand(*node, [&](ValueId operand) { holds = holds || holds_sums(operand); });
    }
    return holds_sums_[id] = holds;
  }

  // Results keep their strides, so that views of them stay views.
  ValueId in_double(ValueId id) {
    if (const auto known = in_double_.find(id); known != in_double_.end()) return known->second;
    if (!holds_sums(id)) {
      if (rewriter_.type(id).dtype != DType::f32) return id;  // a mask
      return in_double_[id] = rewriter_.emit("aten._to_copy.default", {{"self", ValueRef{id}}, {"dtype", DType::f64}});
    }
    Node node = *rewriter_.producer(id);  // a copy: what is emitted moves the nodes
    const bool sums = base_name(node.op) == "cumsum";
    for_each_operand(node, [&](ValueId& operand) {
      if (!sums || holds_sums(operand)) operand = in_double(operand);
    });
    if (sums) node.set("dtype", DType::f64);
    TensorType type = rewriter_.type(id);
    type.dtype = DType::f64;
    const std::string name = "wide_" + rewriter_.graph().values[id].name;
    return in_double_[id] = rewriter_.emit(node.op, std::move(node.arguments), std::move(type), name);
  }

  Rewriter rewriter_;
  std::unordered_map<ValueId, bool> holds_sums_;
  std::unordered_map<ValueId, ValueId> in_double_;
};

}  // namespace

RewriteCounts exponents(Graph& graph) { return Exponents(graph).run(); }

}  // namespace kw
