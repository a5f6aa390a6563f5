#include "lower/needed.hpp"

#include <cmath>

#include "lower/online.hpp"

namespace kw::lower {
namespace {

using kernel::Expr;
using kernel::ExprId;
using kernel::ExprKind;
using kernel::Index;
using kernel::ScalarOp;

bool is_lowest(const Expr& expr) {
  return expr.kind == ExprKind::kConstant && std::isinf(expr.number) && expr.number < 0;
}

// What a fold leaves out where it is select(…, x, -inf).
ExprId masked_operand(const kernel::Kernel& kernel, ExprId id) {
  const Expr& fold = kernel.exprs[id];
  if (fold.kind == ExprKind::kReduce && fold.reduce == kernel::ReduceOp::kMax) return fold.operands[0];
  const std::optional<OnlineSum> sum = online_sum(kernel, id);
  return sum ? sum->exponent : kernel::kNoExpr;
}

// f of `axis < f`, which the condition asks for.
std::optional<Index> bound_of(const kernel::Kernel& kernel, ExprId id, kernel::Symbol axis) {
  const Expr& condition = kernel.exprs[id];
  if (condition.kind != ExprKind::kOp) return std::nullopt;
  const auto operand = [&](size_t place) -> const Expr& { return kernel.exprs[condition.operands[place]]; };
  if (condition.op == ScalarOp::kLogicalAnd) {
    const std::optional<Index> left = bound_of(kernel, condition.operands[0], axis);
    return left ? left : bound_of(kernel, condition.operands[1], axis);
  }
  const bool smaller_first = condition.op == ScalarOp::kLess || condition.op == ScalarOp::kLessEqual;
  const bool larger_first = condition.op == ScalarOp::kGreater || condition.op == ScalarOp::kGreaterEqual;
  if (!smaller_first && !larger_first) return std::nullopt;
  const Expr &smaller = operand(smaller_first ? 0 : 1), &larger = operand(smaller_first ? 1 : 0);
  if (smaller.kind != ExprKind::kIndex || larger.kind != ExprKind::kIndex || kernel::uses(larger.index, axis))
    return std::nullopt;
  const auto linear = kernel::linear_in(smaller.index, axis);
  if (!linear || !(linear->coefficient == Index(1))) return std::nullopt;
  const bool or_equal = condition.op == ScalarOp::kLessEqual || condition.op == ScalarOp::kGreaterEqual;
  return larger.index - linear->rest + Index(or_equal ? 1 : 0);
}

}  // namespace

std::optional<Index> first_needless(const kernel::Kernel& kernel, const std::vector<ExprId>& folds,
                                    kernel::Symbol axis) {
  std::optional<Index> common;
  for (ExprId id : folds) {
    const ExprId masked = masked_operand(kernel, id);
    if (masked == kernel::kNoExpr) return std::nullopt;
    const Expr& select = kernel.exprs[masked];
    if (select.kind != ExprKind::kOp || select.op != ScalarOp::kSelect || !is_lowest(kernel.exprs[select.operands[2]]))
      return std::nullopt;
    const std::optional<Index> bound = bound_of(kernel, select.operands[0], axis);
    if (!bound || (common && !(*common == *bound))) return std::nullopt;
    common = bound;
  }
  return common;
}

}  // namespace kw::lower
