#include "passes/bounds.hpp"

#include <algorithm>
#include <cmath>

#include "ir/numbers.hpp"
#include "ir/op_registry.hpp"

namespace kw {
namespace {

Bound union_of(const Bound& left, const Bound& right) {
  Bound both{std::min(left.low, right.low), std::max(left.high, right.high), left.is_whole && right.is_whole, true};
  if (both.low == 0.0 && (std::signbit(left.low) || std::signbit(right.low))) both.low = -0.0;
  both.zeros_are_clamped = (left.zeros_are_clamped || left.never_below_zero()) &&
                           (right.zeros_are_clamped || right.never_below_zero());
  return both;
}

Bound number(double value) { return {value, value, std::floor(value) == value, false}; }

// A bound that the type rounds would not be the bound of what is stored.
std::optional<double> bound_in(DType dtype, const Node& node, std::string_view name) {
  const Argument* argument = node.find(name);
  if (!argument || !is_number(*argument) || !holds_exactly(dtype, *argument) || std::isnan(as_double(*argument)))
    return std::nullopt;
  return as_double(*argument);
}

}  // namespace

bool Bound::never_below_zero() const { return low > 0.0 || (low == 0.0 && !std::signbit(low)); }

Bound Bounds::found(const Graph& graph, const Node& node) const {
  const std::string_view name = base_name(node.op);
  const OpInfo& info = op_info(node.op);
  const DType dtype = graph.type(node.results[0]).dtype;
  const ValueId self = node.value("self");
  const Bound of_self = self == kNoValue ? Bound{} : of(self);
  if (info.rule == OpRule::kFull) {
    const Argument* value = node.find("fill_value");
    return value && is_number(*value) && !std::isnan(as_double(*value)) && holds_exactly(dtype, *value)
               ? number(as_double(*value))
               : Bound{};
  }
  if (info.rule == OpRule::kCast) {
    Bound bound = of_self;
    if (self == kNoValue || !is_floating(graph.type(self).dtype)) return {};
    if (dtype == DType::f32 && graph.type(self).dtype != DType::f64) return bound;
    return {bound.low >= 0.0 ? std::copysign(0.0, bound.low) : -kInfinity, kInfinity, bound.is_whole,
            bound.zeros_are_clamped};
  }
  if (info.op_class == OpClass::kView || picks_elements(info.rule) || info.form == "self")
    return self != kNoValue && graph.type(self).dtype == dtype ? of_self : Bound{};
  if (info.flags & kNeverNegative) return {0.0, info.flags & kAtMostOne ? 1.0 : kInfinity};
  if (info.flags & kWhole) return {-kInfinity, kInfinity, node.integer("decimals", 0) == 0};
  if (name == "softplus" && node.number("beta", 1.0) > 0.0 && node.number("threshold", 20.0) >= 0.0) return {0.0};
  if (name == "abs") return {0.0, std::max(std::abs(of_self.low), std::abs(of_self.high)), of_self.is_whole};
  if (name == "sqrt") return {of_self.never_below_zero() ? 0.0 : -0.0, kInfinity};
  if (name == "relu" || name == "clamp") {
    if (node.value("min") != kNoValue || node.value("max") != kNoValue) return {};
    Bound bound = of_self;
    const auto low = name == "relu" ? std::optional(0.0) : bound_in(dtype, node, "min"),
               high = bound_in(dtype, node, "max");
    bound.is_whole = false;
    if (node.find("min") && !std::holds_alternative<None>(*node.find("min")) && !low) return {};
    if (node.find("max") && !std::holds_alternative<None>(*node.find("max")) && !high) return {};
    if (low) {
      bound.zeros_are_clamped = *low == 0.0 && !std::signbit(*low);
      if (bound.low < *low || (*low == 0.0 && !bound.never_below_zero())) bound.low = *low == 0.0 ? -0.0 : *low;
      bound.high = std::max(bound.high, *low);
    }
    if (high) {
      if (*high == 0.0) bound.zeros_are_clamped = false;
      bound.high = std::min(bound.high, *high);
      bound.low = *high == 0.0 && bound.low >= 0.0 ? -0.0 : std::min(bound.low, *high);
    }
    return bound;
  }
  const ValueId other = node.value("other");
  const bool same_types = self != kNoValue && other != kNoValue && graph.type(self).dtype == dtype &&
                          graph.type(other).dtype == dtype;
  if (name == "mul" && same_types)
    return self == other || (of_self.never_below_zero() && of(other).never_below_zero()) ? Bound{0.0} : Bound{};
  if (name == "add" && same_types && !node.find("alpha"))
    return of_self.never_below_zero() && of(other).never_below_zero() ? Bound{0.0} : Bound{};
  if (name == "where" && same_types) return union_of(of_self, of(other));
  if (adds_up(info.rule)) return of_self.never_below_zero() ? Bound{0.0} : Bound{};
  if (info.rule == OpRule::kMaxPool || info.rule == OpRule::kAdaptiveMax) {
    // A window that lies beyond the border altogether has no largest element; dilated ones may.
    const IntList dilation = node.integers("dilation", {1});
    const bool is_plain = std::all_of(dilation.begin(), dilation.end(), [](int64_t step) { return step == 1; });
    return is_plain ? of_self : Bound{};
  }
  return {};
}

void Bounds::learn(const Graph& graph, const Node& node) {
  if (node.results.empty() || node.results[0] == kNoValue || !node.op.starts_with("aten.") ||
      !is_floating(graph.type(node.results[0]).dtype))
    return;
  const ValueId result = node.results[0];
  if (known_.size() <= static_cast<size_t>(result)) known_.resize(result + 1);
  known_[result] = found(graph, node);
}

}  // namespace kw
