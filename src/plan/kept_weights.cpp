#include "plan/kept_weights.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "plan/product_lowering.hpp"

namespace kw::plan {
namespace {

// Of what all weights are multiplied by, either way: weights are at most 1, so that no product with more is infinite in
// half precision, where eager's would be.
constexpr double kLargestScale = 0x1p14;

bool is_number(const Expr& expr) { return expr.kind == ExprKind::kConstant && is_floating(expr.dtype); }

class WeightPath {
 public:
  explicit WeightPath(LoweredGroup group) : group_(std::move(group)), kernel_(group_.kernel) {}

  std::optional<KeptWeights> run() {
    if (kernel_.stores.size() != 1 || folds(kernel_)) return std::nullopt;
    find_weights();
    if (!follow(kernel_.stores[0].value)) return std::nullopt;
    const double size = std::abs(scale_);
    // A sum that is infinite, or not a number, would not become the 0 that dropped weights sum to.
    if (!(size >= 1 / kLargestScale && size <= kLargestScale)) return std::nullopt;
    KeptWeights made{nullptr, kept_, scale_};
    if (kept_ != kNoExpr) made.group = std::make_shared<const LoweredGroup>(std::move(group_));
    return made;
  }

 private:
  // Which expressions are made of the weight.
  void find_weights() {
    const int product = product_buffer(group_);
    weighted_.resize(kernel_.exprs.size());
    for (size_t id = 0; id < weighted_.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      weighted_[id] = is_load(expr) && expr.access.buffer == product;
      for (ExprId part : made_of(kernel_, expr)) weighted_[id] = weighted_[id] || weighted_[part];
    }
  }

  // Is the expression, made of the weight, w · k · s?
  bool follow(ExprId id) {
    const Expr expr = kernel_.exprs[id];
    if (is_load(expr)) return expr.access.mask == kNoExpr;
    if (expr.kind != ExprKind::kOp || !is_floating(expr.dtype)) return false;
    switch (expr.op) {
      case ScalarOp::kCast: return follow(expr.operands[0]);
      case ScalarOp::kMul: {
        const size_t place = weighted_[expr.operands[0]] ? 0 : 1;
        return scale_by(expr.operands[1 - place], false) && follow(expr.operands[place]);
      }
      case ScalarOp::kDiv: return scale_by(expr.operands[1], true) && follow(expr.operands[0]);
      case ScalarOp::kSelect: {
        const size_t place = weighted_[expr.operands[1]] ? 1 : 2;
        const Expr& other = kernel_.exprs[expr.operands[3 - place]];
        if (weighted_[expr.operands[0]] || !is_number(other) || other.number != 0.0) return false;
        keep(place == 1 ? expr.operands[0] : condition(ScalarOp::kLogicalNot, {expr.operands[0]}));
        return follow(expr.operands[place]);
      }
      default: return false;
    }
  }

  bool scale_by(ExprId factor, bool divides) {
    if (weighted_[factor]) return false;
    if (const Expr& expr = kernel_.exprs[factor]; is_number(expr)) {
      scale_ = divides ? scale_ / expr.number : scale_ * expr.number;
      return true;
    }
    if (divides || !is_one_or_zero(factor)) return false;
    keep(condition_of(factor));
    return true;
  }

  bool is_one_or_zero(ExprId id) const {
    const Expr& expr = kernel_.exprs[id];
    if (expr.dtype == DType::b1) return true;
    if (is_number(expr)) return expr.number == 0.0 || expr.number == 1.0;
    if (expr.kind != ExprKind::kOp) return false;
    switch (expr.op) {
      case ScalarOp::kCast: return is_one_or_zero(expr.operands[0]);
      case ScalarOp::kMul: return is_one_or_zero(expr.operands[0]) && is_one_or_zero(expr.operands[1]);
      case ScalarOp::kSelect: return is_one_or_zero(expr.operands[1]) && is_one_or_zero(expr.operands[2]);
      default: return false;
    }
  }

  ExprId condition_of(ExprId number) {
    const Expr expr = kernel_.exprs[number];
    if (expr.dtype == DType::b1) return number;
    if (expr.kind == ExprKind::kOp && expr.op == ScalarOp::kCast) return condition_of(expr.operands[0]);
    Expr zero;
    zero.kind = ExprKind::kConstant;
    zero.dtype = expr.dtype;
    return condition(ScalarOp::kNotEqual, {number, added(std::move(zero))});
  }

  void keep(ExprId condition_too) {
    kept_ = kept_ == kNoExpr ? condition_too : condition(ScalarOp::kLogicalAnd, {kept_, condition_too});
  }

  ExprId condition(ScalarOp op, std::vector<ExprId> operands) {
    Expr expr;
    expr.kind = ExprKind::kOp;
    expr.op = op;
    expr.dtype = DType::b1;
    expr.operands = std::move(operands);
    return added(std::move(expr));
  }

  ExprId added(Expr expr) {
    kernel_.exprs.push_back(std::move(expr));
    weighted_.push_back(false);
    return static_cast<ExprId>(kernel_.exprs.size()) - 1;
  }

  LoweredGroup group_;
  GroupKernel& kernel_;
  std::vector<bool> weighted_;
  ExprId kept_ = kNoExpr;
  double scale_ = 1.0;
};

}  // namespace

std::optional<KeptWeights> kept_weights(LoweredGroup group) { return WeightPath(std::move(group)).run(); }

}  // namespace kw::plan
