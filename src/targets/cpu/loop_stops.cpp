#include "targets/cpu/loop_stops.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace kw::cpu {

using namespace plan;

namespace {

double neutral_of(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::kMax: return -std::numeric_limits<double>::infinity();
    case ReduceOp::kMin: return std::numeric_limits<double>::infinity();
    case ReduceOp::kProd: return 1.0;
    default: return 0.0;
  }
}

class Search {
 public:
  Search(const GroupKernel& kernel, int axis) : kernel_(kernel), axis_(axis), axes_(kernel::dependences(kernel)) {}

  // Stops of a value that is `identity` past each of them.
  std::vector<ExprId> of_value(ExprId id, double identity) const {
    const Expr& expr = kernel_.exprs[id];
    if (looks_up(expr)) {
      const ExprId condition = parts_of_mask(kernel_, expr.access.mask).condition;
      return condition != kNoExpr && expr.access.otherwise == identity ? of_condition(condition)
                                                                       : std::vector<ExprId>{};
    }
    if (expr.kind != ExprKind::kOp) return {};
    if (expr.op == ScalarOp::kCast) return of_value(expr.operands[0], identity);
    if (expr.op == ScalarOp::kSelect) {
      if (is_constant(expr.operands[2], identity))
        return together(of_condition(expr.operands[0]), of_value(expr.operands[1], identity));
      return {};
    }
    // A product is 0 where both of its factors are.
    if (expr.op != ScalarOp::kMul || identity != 0.0) return {};
    std::vector<ExprId> left = of_value(expr.operands[0], 0.0);
    const std::vector<ExprId> right = of_value(expr.operands[1], 0.0);
    std::erase_if(left, [&](ExprId one) { return std::find(right.begin(), right.end(), one) == right.end(); });
    return left;
  }

 private:
  static std::vector<ExprId> together(std::vector<ExprId> left, const std::vector<ExprId>& right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
  }

  bool is_constant(ExprId id, double number) const {
    const Expr& expr = kernel_.exprs[id];
    return expr.kind == ExprKind::kConstant &&
           (is_floating(expr.dtype) ? expr.number : static_cast<double>(expr.integer)) == number;
  }

  // The axis's own index, perhaps cast to another integer.
  bool is_place(ExprId id) const {
    const Expr& expr = kernel_.exprs[id];
    if (expr.kind == ExprKind::kOp && expr.op == ScalarOp::kCast) return is_place(expr.operands[0]);
    return expr.kind == ExprKind::kIndex && kernel::as_symbol(expr.index) == axis_;
  }

  std::vector<ExprId> of_condition(ExprId id) const {
    const Expr& expr = kernel_.exprs[id];
    if (expr.kind != ExprKind::kOp) return {};
    if (expr.op == ScalarOp::kLogicalAnd)
      return together(of_condition(expr.operands[0]), of_condition(expr.operands[1]));
    if (expr.op != ScalarOp::kLess || !is_place(expr.operands[0])) return {};
    for (int axis = kernel_.parallel; axis < axis_count(kernel_); ++axis)
      if (axes_[expr.operands[1]][axis]) return {};
    return {expr.operands[1]};
  }

  const GroupKernel& kernel_;
  int axis_;
  std::vector<std::vector<bool>> axes_;
};

}  // namespace

bool ends_early_along(const GroupKernel& kernel, int axis, ExprId reduce) {
  if (!is_folded(kernel, axis)) return false;
  const Expr& fold = kernel.exprs[reduce];
  if (fold.reduce != ReduceOp::kSum && fold.reduce != ReduceOp::kExtendedSum && fold.reduce != ReduceOp::kMax &&
      fold.reduce != ReduceOp::kMin)
    return false;
  return !Search(kernel, axis).of_value(fold.operands[0], neutral_of(fold.reduce)).empty();
}

}  // namespace kw::cpu
