#include "kernel/value_range.hpp"

#include <algorithm>
#include <cmath>

namespace kw::kernel {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounded = 1 + 1e-5;  // as far above the exact result as any float of it may be
constexpr double kBelowZero = -std::numeric_limits<double>::denorm_min();  // as low as −0 counts

}  // namespace

ValueRange range_of_constant(double number) {
  if (std::isnan(number)) return {};
  return {number == 0 && std::signbit(number) ? kBelowZero : number, number};
}

ValueRange range_of(ScalarOp op, DType result, std::span<const ValueRange> operands, bool same) {
  const auto both_positive = [&] { return operands[0].low >= 0 && operands[1].low >= 0; };
  const auto around = [](const ValueRange& a, const ValueRange& b) {
    return ValueRange{std::min(a.low, b.low), std::max(a.high, b.high)};
  };
  switch (op) {
    case ScalarOp::kMaximum: {
      const ValueRange &a = operands[0], &b = operands[1];
      // Which of −0 and +0 is the larger one is the device's affair.
      const double low = std::max(a.low, b.low);
      return {low == 0 && std::min(a.low, b.low) < 0 ? kBelowZero : low, std::max(a.high, b.high)};
    }
    case ScalarOp::kFmin:
    case ScalarOp::kFmax: return around(operands[0], operands[1]);  // where one is NaN, the other is the result
    case ScalarOp::kMinimum:
      return {std::min(operands[0].low, operands[1].low), std::min(operands[0].high, operands[1].high)};
    case ScalarOp::kAbs: return {0, std::max(std::abs(operands[0].low), std::abs(operands[0].high))};
    case ScalarOp::kExp: return {0, std::exp(operands[0].high) * kRounded};
    case ScalarOp::kExp2: return {0, std::exp2(operands[0].high) * kRounded};
    case ScalarOp::kReciprocal: return operands[0].low >= 0 ? ValueRange{0, kInfinity} : ValueRange{};
    case ScalarOp::kSigmoid: return {0, 1};
    case ScalarOp::kSqrt: return {operands[0].low >= 0 ? 0 : kBelowZero, kInfinity};
    case ScalarOp::kMul:
      if (!both_positive()) return same ? ValueRange{0, kInfinity} : ValueRange{};
      // Zero times infinity is no number, wherever it stands.
      return {0, std::fmax(operands[0].high * operands[1].high, 0.0) * kRounded};
    case ScalarOp::kAdd:
      if (!both_positive()) return {};
      return {std::max(operands[0].low, operands[1].low), (operands[0].high + operands[1].high) * kRounded};
    case ScalarOp::kDiv: return both_positive() ? ValueRange{0, kInfinity} : ValueRange{};
    case ScalarOp::kPow: return operands[0].low >= 0 ? ValueRange{0, kInfinity} : ValueRange{};
    case ScalarOp::kSelect: return around(operands[1], operands[2]);
    case ScalarOp::kCast: {
      // Rounding to another type keeps the sign; a bound need not be a number of that type.
      const bool single = result == DType::f32 || result == DType::f64;
      return single ? operands[0] : ValueRange{operands[0].low >= 0 ? 0 : -kInfinity, kInfinity};
    }
    default: return {};
  }
}

// What padded lanes hold lies in the range too, or at the operation's identity.
ValueRange range_of(ReduceOp reduce, const ValueRange& operand) {
  if (reduce == ReduceOp::kMax || reduce == ReduceOp::kMin) return operand;
  const bool keeps_sign = reduce == ReduceOp::kSum || reduce == ReduceOp::kExtendedSum || reduce == ReduceOp::kProd;
  return keeps_sign && operand.low >= 0 ? ValueRange{0, kInfinity} : ValueRange{};
}

}  // namespace kw::kernel
