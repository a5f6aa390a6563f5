#include "emit/triton/padding.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel/known_value.hpp"

namespace kw::triton {
namespace {

using namespace kernel_ir;

using Known = std::optional<double>;

Known evaluate(const Kernel& kernel, const Expr& expr, const std::vector<Known>& value) {
  const auto operand = [&](size_t index) { return value[expr.operands[index]]; };
  // What follows a row's maximum: x − max(x) is −∞ wherever x is, unless the whole row is −∞ and every lane NaN alike.
  if (expr.op == ScalarOp::kSub && operand(0) == -INFINITY) {
    const Expr& subtrahend = kernel.exprs[expr.operands[1]];
    const bool is_max = subtrahend.kind == ExprKind::kReduce &&
                        (subtrahend.reduce == ReduceOp::kMax || subtrahend.reduce == ReduceOp::kMaxSumExp);
    if (is_max && subtrahend.component == 0 && subtrahend.operands[0] == expr.operands[0]) return -INFINITY;
  }
  std::vector<Known> operands;
  for (size_t index = 0; index < expr.operands.size(); ++index) operands.push_back(operand(index));
  return kernel::known_result(expr.op, expr.dtype, operands);
}

class PaddingFinder {
 public:
  PaddingFinder(const Kernel& kernel, const std::vector<std::vector<bool>>& axes) : kernel_(kernel), axes_(axes) {
    for (const Axis& axis : kernel.axes) result_.padded.push_back(is_serial(axis) && axis.block > 1 && overhangs(axis));
    result_.load_other.resize(kernel.exprs.size());
    result_.value.resize(kernel.exprs.size());
  }

  Padding run() {
    if (!result_.any()) return result_;
    for (size_t id = 0; id < kernel_.exprs.size(); ++id)
      if (is_padded_load(id)) choose(id);
    evaluate_all();
    return result_;
  }

 private:
  bool is_padded_load(size_t id) const {
    const Expr& expr = kernel_.exprs[id];
    if (expr.kind != ExprKind::kLoad || !expr.access.guards.empty()) return false;
    return masked_everywhere(id);
  }

  // Only where it varies along every padded axis is a lane that any of them pads masked.
  bool masked_everywhere(size_t id) const {
    for (size_t axis = 0; axis < result_.padded.size(); ++axis)
      if (result_.padded[axis] && !axes_[id][axis]) return false;
    return true;
  }

  void evaluate_all() {
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      switch (expr.kind) {
        case ExprKind::kConstant:
          result_.value[id] = is_integral(expr.dtype) || expr.dtype == DType::b1 ? static_cast<double>(expr.integer)
                                                                                 : expr.number;
          break;
        case ExprKind::kLoad:
          result_.value[id] = !expr.access.guards.empty() && masked_everywhere(id) ? Known(expr.access.otherwise)
                                                                                   : result_.load_other[id];
          break;
        case ExprKind::kOp: result_.value[id] = evaluate(kernel_, expr, result_.value); break;
        default: result_.value[id] = std::nullopt;
      }
    }
  }

  static bool folds_padding(const Expr& expr) { return expr.kind == ExprKind::kReduce; }

  int selects() {
    evaluate_all();
    int count = 0;
    for (const Expr& expr : kernel_.exprs)
      if (folds_padding(expr) && expr.component == 0 &&
          result_.value[expr.operands[0]] != Known(identity_of(expr.reduce, kernel_.exprs[expr.operands[0]].dtype)))
        ++count;
    return count;
  }

  void choose(size_t id) {
    const DType dtype = kernel_.exprs[id].dtype;
    std::vector<double> candidates = {0.0, 1.0, identity_of(ReduceOp::kMax, dtype), identity_of(ReduceOp::kMin, dtype)};
    if (dtype == DType::i64) candidates.resize(2);  // its limits are no doubles
    int fewest = selects();
    Known best;
    for (double candidate : candidates) {
      result_.load_other[id] = candidate;
      const int count = selects();
      if (count >= fewest) continue;
      fewest = count;
      best = candidate;
    }
    result_.load_other[id] = best;
  }

  const Kernel& kernel_;
  const std::vector<std::vector<bool>>& axes_;
  Padding result_;
};

double largest_of(DType dtype) {
  switch (dtype) {
    case DType::i64: return 9223372036854775807.0;
    case DType::i32: return 2147483647.0;
    case DType::i16: return 32767.0;
    case DType::i8: return 127.0;
    case DType::u8: return 255.0;
    case DType::b1: return 1.0;
    default: return std::numeric_limits<double>::infinity();
  }
}

double smallest_of(DType dtype) {
  switch (dtype) {
    case DType::i64: return -9223372036854775808.0;
    case DType::i32: return -2147483648.0;
    case DType::i16: return -32768.0;
    case DType::i8: return -128.0;
    case DType::u8:
    case DType::b1: return 0.0;
    default: return -std::numeric_limits<double>::infinity();
  }
}

}  // namespace

bool Padding::any() const { return std::find(padded.begin(), padded.end(), true) != padded.end(); }

Padding find_padding(const Kernel& kernel, const std::vector<std::vector<bool>>& axes) {
  return PaddingFinder(kernel, axes).run();
}

double identity_of(ReduceOp reduce, DType dtype, size_t position) {
  switch (reduce) {
    case ReduceOp::kProd:
    case ReduceOp::kAll: return 1.0;
    case ReduceOp::kMax:
    case ReduceOp::kArgMax:
    case ReduceOp::kMaxSumExp:
    case ReduceOp::kLogSumExp: return smallest_of(dtype);
    case ReduceOp::kCombineMaxSumExp: return position == 0 ? smallest_of(dtype) : 0.0;
    case ReduceOp::kMin:
    case ReduceOp::kArgMin: return largest_of(dtype);
    default: return 0.0;
  }
}

}  // namespace kw::triton
