#include "emit/value_range.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace kw::kernel_ir {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kBelowZero = -std::numeric_limits<double>::denorm_min();  // as low as −0 counts

class Ranges {
 public:
  explicit Ranges(const Kernel& kernel) : kernel_(kernel) {}

  ValueRange of(ExprId id) {
    if (const auto known = known_.find(id); known != known_.end()) return known->second;
    const Expr& expr = kernel_.exprs[id];
    const ValueRange range = is_floating(expr.dtype) ? found(expr) : ValueRange{};
    known_.emplace(id, range);
    return range;
  }

 private:
  ValueRange found(const Expr& expr) {
    if (expr.kind == ExprKind::kConstant) {
      if (std::isnan(expr.number)) return {};
      return {expr.number == 0 && std::signbit(expr.number) ? kBelowZero : expr.number, expr.number};
    }
    if (expr.kind == ExprKind::kReduce && expr.access.guards.empty()) return of_reduce(expr);
    if (expr.kind != ExprKind::kOp) return {};
    switch (expr.op) {
      case ScalarOp::kMaximum: {
        const ValueRange a = of(expr.operands[0]), b = of(expr.operands[1]);
        // Which of −0 and +0 is the larger one is the device's affair.
        const double low = std::max(a.low, b.low);
        return {low == 0 && std::min(a.low, b.low) < 0 ? kBelowZero : low, std::max(a.high, b.high)};
      }
      case ScalarOp::kFmin:
      case ScalarOp::kFmax: {  // one operand may be NaN, and the other is the result
        const ValueRange a = of(expr.operands[0]), b = of(expr.operands[1]);
        return {std::min(a.low, b.low), std::max(a.high, b.high)};
      }
      case ScalarOp::kMinimum: {
        const ValueRange a = of(expr.operands[0]), b = of(expr.operands[1]);
        return {std::min(a.low, b.low), std::min(a.high, b.high)};
      }
      case ScalarOp::kAbs: {
        const ValueRange a = of(expr.operands[0]);
        return {0, std::max(std::abs(a.low), std::abs(a.high))};
      }
      case ScalarOp::kExp:
      case ScalarOp::kExp2:
      case ScalarOp::kReciprocal: {
        const ValueRange a = of(expr.operands[0]);
        return expr.op != ScalarOp::kReciprocal || a.low >= 0 ? ValueRange{0, kInfinity} : ValueRange{};
      }
      case ScalarOp::kSigmoid: return {0, 1};
      case ScalarOp::kSqrt: {
        const ValueRange a = of(expr.operands[0]);
        return {a.low >= 0 ? 0 : kBelowZero, kInfinity};
      }
      case ScalarOp::kMul: {
        if (expr.operands[0] == expr.operands[1]) return {0, kInfinity};
        return both_positive(expr) ? ValueRange{0, kInfinity} : ValueRange{};
      }
      case ScalarOp::kAdd: {
        const ValueRange a = of(expr.operands[0]), b = of(expr.operands[1]);
        return both_positive(expr) ? ValueRange{std::max(a.low, b.low), kInfinity} : ValueRange{};
      }
      case ScalarOp::kDiv:
      case ScalarOp::kPow: {
        const bool positive = expr.op == ScalarOp::kDiv ? both_positive(expr) : of(expr.operands[0]).low >= 0;
        return positive ? ValueRange{0, kInfinity} : ValueRange{};
      }
      case ScalarOp::kSelect: {
        const ValueRange a = of(expr.operands[1]), b = of(expr.operands[2]);
        return {std::min(a.low, b.low), std::max(a.high, b.high)};
      }
      case ScalarOp::kCast: {
        // Rounding to another type keeps the sign; a bound need not be a number of that type.
        const ValueRange a = of(expr.operands[0]);
        const bool single = expr.dtype == DType::f32 || expr.dtype == DType::f64;
        return single ? a : ValueRange{a.low >= 0 ? 0 : -kInfinity, kInfinity};
      }
      default: return {};
    }
  }

  // What padded lanes hold lies in the range too, or at the operation's identity.
  ValueRange of_reduce(const Expr& expr) {
    const ValueRange a = of(expr.operands[0]);
    if (expr.reduce == ReduceOp::kMax || expr.reduce == ReduceOp::kMin) return a;
    const bool keeps_sign = expr.reduce == ReduceOp::kSum || expr.reduce == ReduceOp::kProd;
    return keeps_sign && a.low >= 0 ? ValueRange{0, kInfinity} : ValueRange{};
  }

  bool both_positive(const Expr& expr) { return of(expr.operands[0]).low >= 0 && of(expr.operands[1]).low >= 0; }

  const Kernel& kernel_;
  std::map<ExprId, ValueRange> known_;
};

}  // namespace

ValueRange value_range(const Kernel& kernel, ExprId id) { return Ranges(kernel).of(id); }

}  // namespace kw::kernel_ir
