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

// Nodes between a cumsum and its exponential: what goes on for longer (a loop that was unrolled) is left as it is.
constexpr int kLongestWay = 64;

class Exponents {
 public:
  explicit Exponents(Graph& graph) : rewriter_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      note_sums(node);
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

  // Where the node's result is made of cumsums by nodes that pass them on, how long that way is.
  void note_sums(const Node& node) {
    if (!node.op.starts_with("aten.") || node.results.size() != 1 || node.results[0] == kNoValue ||
        rewriter_.type(node.results[0]).dtype != DType::f32)
      return;
    constexpr std::array kPassOn = {"add", "cat", "clone", "constant_pad_nd", "div", "flip", "masked_fill", "mul",
                                    "neg", "sub", "where"};
    const std::string_view name = base_name(node.op);
    int way = name == "cumsum" ? 1 : 0;
    const bool passes_on = way > 0 || std::find(kPassOn.begin(), kPassOn.end(), name) != kPassOn.end() ||
                           class_of(node.op) == OpClass::kView;
    if (!passes_on || !node.text("rounding_mode").empty()) return;
    for_each_operand(node, [&](ValueId operand) {
      if (const auto found = ways_.find(operand); found != ways_.end()) way = std::max(way, found->second + 1);
    });
    if (way > 0 && way <= kLongestWay) ways_[node.results[0]] = way;
  }

  bool holds_sums(ValueId id) const { return ways_.contains(id); }

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
  std::unordered_map<ValueId, int> ways_;  // of values that hold sums: nodes since the first of them
  std::unordered_map<ValueId, ValueId> in_double_;
};

}  // namespace

RewriteCounts exponents(Graph& graph) { return Exponents(graph).run(); }

}  // namespace kw
