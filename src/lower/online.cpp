#include "lower/online.hpp"

#include <set>
#include <vector>

namespace kw::lower {
namespace {

using kernel::Expr;
using kernel::ExprId;
using kernel::ExprKind;
using kernel::ReduceOp;
using kernel::ScalarOp;

class ScaleFinder {
 public:
  ScaleFinder(const kernel::Kernel& kernel, ExprId maximum, ScalarOp power)
      : kernel_(kernel), maximum_(maximum), power_(power), depends_(kernel.exprs.size()) {
    depends_[maximum] = true;
    for (size_t id = static_cast<size_t>(maximum) + 1; id < kernel.exprs.size(); ++id)
      for (ExprId input : inputs_of(kernel.exprs[id]))
        if (depends_[input]) depends_[id] = true;
  }

  // Is the sum's operand power(a − m) · b?
  bool scales_as_sum(const Expr& sum) {
    if (sum.kind == ExprKind::kDot)
      return (scales(sum.operands[0]) && !depends_[sum.operands[1]]) ||
             (scales(sum.operands[1]) && !depends_[sum.operands[0]]);
    return sum.kind == ExprKind::kReduce && sum.reduce == ReduceOp::kSum && scales(sum.operands[0]);
  }

  ExprId exponent() const { return exponents_.size() == 1 ? *exponents_.begin() : kernel::kNoExpr; }
  ExprId factor() const { return factor_.value_or(kernel::kNoExpr); }

 private:
  bool scales(ExprId id) {
    const Expr& expr = kernel_.exprs[id];
    if (expr.kind != ExprKind::kOp || !depends_[id] || !is_floating(expr.dtype)) return false;
    const auto free = [&](size_t place) { return !depends_[expr.operands[place]]; };
    const auto scaled = [&](size_t place) { return scales(expr.operands[place]); };
    if (expr.op == power_) return takes_difference(expr.operands[0]);
    switch (expr.op) {
      case ScalarOp::kMul: return (scaled(0) && free(1)) || (free(0) && scaled(1));
      case ScalarOp::kDiv: return scaled(0) && free(1);
      case ScalarOp::kNeg: return scaled(0);
      case ScalarOp::kAdd:
      case ScalarOp::kSub: return scaled(0) && scaled(1);
      // A number rounded to a whole one no longer scales.
      case ScalarOp::kCast: return is_floating(kernel_.exprs[expr.operands[0]].dtype) && scaled(0);
      case ScalarOp::kSelect: return free(0) && (scaled(1) || is_zero(1, expr)) && (scaled(2) || is_zero(2, expr));
      default: return false;
    }
  }

  // Is the exponent f · (a − m), with the same f everywhere?
  bool takes_difference(ExprId id) {
    ExprId factor = kernel::kNoExpr;
    if (const Expr& expr = kernel_.exprs[id]; expr.kind == ExprKind::kOp && expr.op == ScalarOp::kMul) {
      factor = expr.operands[1];
      id = expr.operands[0];
      if (const Expr& one = kernel_.exprs[factor]; one.kind != ExprKind::kConstant || !(one.number > 0)) return false;
    }
    if (!is_difference(id) || !is_same_factor(factor)) return false;
    factor_ = factor;
    exponents_.insert(kernel_.exprs[id].operands[0]);
    return true;
  }

  bool is_same_factor(ExprId factor) const {
    if (!factor_ || *factor_ == factor) return true;
    if (*factor_ == kernel::kNoExpr || factor == kernel::kNoExpr) return false;
    return kernel_.exprs[*factor_].number == kernel_.exprs[factor].number;
  }

  bool is_difference(ExprId id) const {
    const Expr& expr = kernel_.exprs[id];
    return expr.kind == ExprKind::kOp && expr.op == ScalarOp::kSub && is_maximum(expr.operands[1]) &&
           !depends_[expr.operands[0]];
  }

  // The maximum, or its distance from what does not depend on it: a factor of the exponential.
  bool is_maximum(ExprId id) const {
    if (id == maximum_) return true;
    const Expr& expr = kernel_.exprs[id];
    return expr.kind == ExprKind::kOp && (expr.op == ScalarOp::kSub || expr.op == ScalarOp::kAdd) &&
           expr.operands[0] == maximum_ && !depends_[expr.operands[1]];
  }

  bool is_zero(size_t place, const Expr& expr) const {
    const Expr& operand = kernel_.exprs[expr.operands[place]];
    return operand.kind == ExprKind::kConstant && operand.number == 0.0;
  }

  const kernel::Kernel& kernel_;
  const ExprId maximum_;
  const ScalarOp power_;
  std::vector<bool> depends_;
  std::set<ExprId> exponents_;
  std::optional<ExprId> factor_;
};

}  // namespace

std::optional<OnlineSum> online_sum(const kernel::Kernel& kernel, ExprId reduction) {
  const Expr& sum = kernel.exprs[reduction];
  for (ExprId id = 0; id < reduction; ++id) {
    const Expr& maximum = kernel.exprs[id];
    if (maximum.kind != ExprKind::kReduce || maximum.reduce != ReduceOp::kMax || !is_floating(maximum.dtype)) continue;
    for (const ScalarOp power : {ScalarOp::kExp, ScalarOp::kExp2})
      if (ScaleFinder finder(kernel, id, power); finder.scales_as_sum(sum))
        return OnlineSum{id, power, finder.exponent(), finder.factor()};
  }
  return std::nullopt;
}

}  // namespace kw::lower
