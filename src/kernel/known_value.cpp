#include "kernel/known_value.hpp"

#include <algorithm>
#include <cmath>

#include "kernel/scalar_values.hpp"

namespace kw::kernel {

std::optional<double> known_result(ScalarOp op, DType result_type, std::span<const std::optional<double>> operands) {
  if (op == ScalarOp::kSelect) return operands[1] == operands[2] ? operands[1] : std::nullopt;
  if (!std::all_of(operands.begin(), operands.end(), [](const auto& one) { return one.has_value(); }))
    return std::nullopt;
  const auto operand = [&](size_t place) { return *operands[place]; };
  const auto of_zero = [&](double result) { return operand(0) == 0 ? std::optional(result) : std::nullopt; };
  switch (op) {
    case ScalarOp::kAdd: return operand(0) + operand(1);
    case ScalarOp::kSub: return operand(0) - operand(1);
    case ScalarOp::kMul: return operand(0) * operand(1);
    case ScalarOp::kNeg: return -operand(0);
    case ScalarOp::kAbs: return std::fabs(operand(0));
    case ScalarOp::kMaximum: return std::max(operand(0), operand(1));
    case ScalarOp::kMinimum: return std::min(operand(0), operand(1));
    case ScalarOp::kExp: return operand(0) == -INFINITY ? 0.0 : of_zero(1.0);
    case ScalarOp::kSqrt:
    case ScalarOp::kSin:
    case ScalarOp::kTanh:
    case ScalarOp::kErf: return of_zero(0.0);
    case ScalarOp::kCast: {
      const bool is_exact = result_type != DType::b1 && std::trunc(operand(0)) == operand(0) &&
                            (!is_real(result_type) || round_to(result_type, operand(0)) == operand(0));
      return is_exact ? std::optional(operand(0)) : std::nullopt;
    }
    default: return std::nullopt;
  }
}

}  // namespace kw::kernel
