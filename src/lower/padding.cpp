#include "lower/padding.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel/known_value.hpp"
#include "kernel/scalar_values.hpp"

namespace kw::lower {
namespace {

using kernel::Expr;
using kernel::ExprId;
using kernel::ExprKind;
using kernel::ReduceOp;
using kernel::ScalarOp;
using Known = std::optional<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool maps_and_folds(const kernel::Kernel& kernel) {
  return std::none_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) {
    return expr.kind == ExprKind::kDot || expr.kind == ExprKind::kScan || expr.kind == ExprKind::kState;
  });
}

// What the fold starts from, of this operand; nullopt where no double says it.
Known start_of(const Expr& fold, size_t place, DType operand) {
  ReduceOp reduce = fold.reduce;
  if (reduce == ReduceOp::kMoments || reduce == ReduceOp::kCombineMoments) reduce = ReduceOp::kSum;
  if (reduce == ReduceOp::kMaxSumExp || reduce == ReduceOp::kArgMax) reduce = ReduceOp::kMax;
  if (reduce == ReduceOp::kCombineMaxSumExp) reduce = place == 0 ? ReduceOp::kMax : ReduceOp::kSum;
  if (reduce == ReduceOp::kArgMin) reduce = ReduceOp::kMin;
  if (!kernel::identity_of(reduce)) return std::nullopt;
  const kernel::Number identity = kernel::identity(reduce, operand);
  if (kernel::is_real(operand)) return identity.real;
  const double number = static_cast<double>(identity.whole);
  return std::abs(number) < 9e15 ? Known(number) : std::nullopt;
}

class Finder {
 public:
  Finder(const kernel::Kernel& kernel, const Mapped& mapped)
      : kernel_(kernel),
        depends_(kernel::dependences(kernel)),
        padded_(kernel.symbols.size()),
        otherwise_(kernel.exprs.size()),
        values_(kernel.exprs.size()) {
    for (const Expr& expr : kernel.exprs)
      if (expr.kind == ExprKind::kReduce)
        for (kernel::Symbol axis : expr.axes) {
          padded_[axis] = mapped.axes[axis].padded;
          is_simd_ = is_simd_ || (padded_[axis] && is_simd(mapped, axis));
          const int64_t fewest = kernel::range_of(mapped.axes[axis].extent, tile::ranges_of(mapped.program)).low;
          may_be_empty_ = may_be_empty_ || fewest < 1;
        }
  }

  void run() {
    if (std::find(padded_.begin(), padded_.end(), true) == padded_.end()) return;
    if (may_be_empty_) return;
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      if (expr.kind == ExprKind::kLoad && expr.access.mask == kernel::kNoExpr && is_masked_everywhere(id)) choose(id);
    }
    evaluate();
  }

  std::vector<Known> otherwise() { return std::move(otherwise_); }
  std::vector<Known> values() { return std::move(values_); }

 private:
  static bool is_simd(const Mapped& mapped, kernel::Symbol axis) {
    const tile::Symbol lane = mapped.axes[axis].lane;
    return lane >= 0 && mapped.program.symbols[lane].simd;
  }

  // Only where it varies along every padded axis is a lane that any of them pads masked.
  bool is_masked_everywhere(size_t id) const {
    for (size_t axis = 0; axis < padded_.size(); ++axis)
      if (padded_[axis] && !depends_[id][axis]) return false;
    return true;
  }

  void evaluate() {
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      values_[id] = std::nullopt;
      if (expr.kind == ExprKind::kConstant)
        values_[id] = kernel::is_real(expr.dtype) ? expr.number : static_cast<double>(expr.integer);
      if (expr.kind == ExprKind::kLoad)
        values_[id] = expr.access.mask != kernel::kNoExpr && is_masked_everywhere(id) ? Known(expr.access.otherwise)
                                                                                      : otherwise_[id];
      if (expr.kind == ExprKind::kOp) values_[id] = evaluate(expr);
    }
  }

  bool is_maximum_of(ExprId fold, ExprId operand) const {
    const Expr& expr = kernel_.exprs[fold];
    return expr.kind == ExprKind::kReduce && expr.component == 0 && expr.operands[0] == operand &&
           (expr.reduce == ReduceOp::kMax || expr.reduce == ReduceOp::kMaxSumExp ||
            expr.reduce == ReduceOp::kCombineMaxSumExp);
  }

  Known evaluate(const Expr& expr) const {
    const auto operand = [&](size_t place) { return values_[expr.operands[place]]; };
    // x − max(x) is −∞ wherever x is, unless the whole row is −∞ and every lane NaN alike.
    if (expr.op == ScalarOp::kSub && operand(0) == -kInfinity && is_maximum_of(expr.operands[1], expr.operands[0]))
      return -kInfinity;
    std::vector<Known> operands;
    for (size_t place = 0; place < expr.operands.size(); ++place) operands.push_back(operand(place));
    return kernel::known_result(expr.op, expr.dtype, operands);
  }

  // Operands of folds that would have to be masked.
  int masks() {
    evaluate();
    int count = 0;
    for (const Expr& expr : kernel_.exprs) {
      if (expr.kind != ExprKind::kReduce || expr.component != 0) continue;
      for (size_t place = 0; place < expr.operands.size(); ++place) {
        const Known start = start_of(expr, place, kernel_.exprs[expr.operands[place]].dtype);
        count += !start || values_[expr.operands[place]] != start;
      }
    }
    return count;
  }

  void choose(size_t id) {
    const DType dtype = kernel_.exprs[id].dtype;
    std::vector<double> candidates = {0.0, 1.0};
    // The limits of i64 are no doubles, and the exponential of −∞ costs a CPU several others.
    if (dtype != DType::i64 && !is_simd_)
      for (ReduceOp reduce : {ReduceOp::kMax, ReduceOp::kMin}) {
        const kernel::Number identity = kernel::identity(reduce, dtype);
        candidates.push_back(kernel::is_real(dtype) ? identity.real : static_cast<double>(identity.whole));
      }
    int fewest = masks();
    Known best;
    for (double candidate : candidates) {
      if (kernel::is_real(dtype) && kernel::round_to(dtype, candidate) != candidate) continue;
      otherwise_[id] = candidate;
      const int count = masks();
      if (count >= fewest) continue;
      fewest = count;
      best = candidate;
    }
    otherwise_[id] = best;
  }

  const kernel::Kernel& kernel_;
  const std::vector<std::vector<bool>> depends_;  // [expression][symbol]
  std::vector<bool> padded_;                      // [symbol]
  bool is_simd_ = false;                          // is one of them what a CPU takes side by side?
  // The largest of no elements is -inf, and -inf below it is no number.
  bool may_be_empty_ = false;
  std::vector<Known> otherwise_, values_;
};

}  // namespace

Padding::Padding(const kernel::Kernel& kernel, const Mapped& mapped)
    : otherwise_(kernel.exprs.size()), values_(kernel.exprs.size()) {
  const bool is_bulk = std::find(mapped.bulk.begin(), mapped.bulk.end(), true) != mapped.bulk.end();
  if (is_bulk || !maps_and_folds(kernel)) return;  // beyond a box there are zeros
  Finder finder(kernel, mapped);
  finder.run();
  otherwise_ = finder.otherwise();
  values_ = finder.values();
}

}  // namespace kw::lower
