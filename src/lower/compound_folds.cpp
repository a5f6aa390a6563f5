// Folds of several results over an axis that a block has whole: each as two folds, the second of which needs the first.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lower/values.hpp"

namespace kw::lower {

using kernel::Expr;
using kernel::ExprKind;
using kernel::ReduceOp;
using kernel::ScalarOp;
using tile::Value;

// Points that it folds.
double Values::folded_points(const Expr& fold) const {
  double points = 1;
  for (Axis axis : fold.axes) {
    const auto extent = kernel::as_constant(mapped.axes[axis].extent);
    if (!extent)
      refuse(fmt::format("a {} folds axis '{}', of a length that is not known", kernel::name_of(fold.reduce),
                         name_of(axis)));
    points *= static_cast<double>(*extent);
  }
  return points;
}

std::string Values::component_name(const Expr& fold, int component) const {
  for (const Expr& expr : kernel.exprs)
    if (expr.kind == fold.kind && expr.reduce == fold.reduce && expr.component == component &&
        expr.operands == fold.operands && expr.axes == fold.axes && !expr.name.empty())
      return expr.name;
  if (fold.kind == ExprKind::kScan) return component == 0 ? "running" : "running_at";
  if (fold.reduce == ReduceOp::kMoments || fold.reduce == ReduceOp::kCombineMoments)
    return component == 0 ? "mean" : "squared_deviations";
  return component == 0 ? "largest" : "exponential_sum";
}

Value Values::simple_fold(const Expr& fold, ReduceOp reduce, Value operand, std::optional<double> beyond,
                          const std::string& name) {
  Expr simple = fold;
  simple.reduce = reduce;
  simple.component = 0;
  return fold_lanes(simple, masked(simple, operand, beyond), name);
}

Value Values::fold_lanes_of(const Expr& fold, ReduceOp reduce, Value operand, const std::string& name) {
  Expr simple = fold;
  simple.reduce = reduce;
  simple.component = 0;
  simple.dtype = emission.type(operand).dtype;
  return fold_lanes(simple, operand, name);
}

Value Values::compound_fold(const Expr& fold) {
  switch (fold.reduce) {
    case ReduceOp::kMoments: return moments(fold);
    case ReduceOp::kCombineMoments: return combined_moments(fold);
    case ReduceOp::kCombineMaxSumExp: return combined_max_sum_exp(fold);
    default: return max_sum_exp(fold);
  }
}

Value Values::masked_operand(const Expr& fold, size_t place, ReduceOp reduce) {
  Expr simple = fold;
  simple.reduce = reduce;
  return masked(simple, value_of(fold.operands[place]), padding_.value(fold.operands[place]));
}

// The mean is a sum of shares, whose weights are powers of two: no sum on the way is larger than the largest value.
Value Values::moments(const Expr& fold) {
  const DType dtype = fold.dtype;
  const Value value = value_of(fold.operands[0]);
  const std::string name = component_name(fold, 0);
  const double points = folded_points(fold), whole = std::exp2(std::ceil(std::log2(std::max(points, 1.0))));
  Value share = value;
  if (whole != 1.0) share = emission.op(ScalarOp::kMul, {value, emission.constant({dtype, {}}, 1 / whole)}, dtype);
  const auto beyond = padding_.value(fold.operands[0]);
  const std::optional<double> share_beyond = beyond ? std::optional(*beyond / whole) : std::nullopt;
  Value mean = simple_fold(fold, ReduceOp::kSum, share, share_beyond, whole == points ? name : name + "_share");
  if (whole != points)
    mean = emission.op(ScalarOp::kDiv, {mean, emission.constant({dtype, {}}, points / whole)}, dtype, name);
  if (fold.component == 0) return mean;
  const std::string squares = component_name(fold, 1);
  const Value distance = emission.op(ScalarOp::kSub, {value, mean}, dtype, "difference");
  Expr sum = fold;
  sum.reduce = ReduceOp::kSum;
  const Value inside = masked(sum, distance, std::nullopt, squares + "_from_mean");
  return simple_fold(fold, ReduceOp::kSum, emission.op(ScalarOp::kMul, {inside, inside}, dtype), 0.0, squares);
}

// Of parts with means, squared deviations and counts (Chan, Golub and LeVeque 1983).
Value Values::combined_moments(const Expr& fold) {
  const DType dtype = fold.dtype;
  const std::string mean_name = component_name(fold, 0), squares_name = component_name(fold, 1);
  const Expr& size = kernel.exprs[fold.operands[2]];
  const bool equal = size.kind == ExprKind::kConstant;  // the mean of means
  const auto binary = [&](ScalarOp op, Value left, Value right, const std::string& name = "") {
    return emission.op(op, {left, right}, dtype, name);
  };
  const Value means = equal ? value_of(fold.operands[0]) : masked_operand(fold, 0, ReduceOp::kSum);
  const Value counts = equal ? value_of(fold.operands[2]) : masked_operand(fold, 2, ReduceOp::kSum);
  Value mean;
  if (equal) {
    const double parts = folded_points(fold), whole = std::exp2(std::ceil(std::log2(std::max(parts, 1.0))));
    const Value shares = whole == 1.0 ? means
                                      : binary(ScalarOp::kMul, means, emission.constant({dtype, {}}, 1 / whole));
    const auto beyond = padding_.value(fold.operands[0]);
    mean = simple_fold(fold, ReduceOp::kSum, shares, beyond ? std::optional(*beyond / whole) : std::nullopt,
                       whole == parts ? mean_name : mean_name + "_share");
    if (whole != parts) mean = binary(ScalarOp::kDiv, mean, emission.constant({dtype, {}}, parts / whole), mean_name);
  } else {
    // Shares of one, so that no sum is larger than the largest value.
    const Value all = fold_lanes_of(fold, ReduceOp::kSum, counts, mean_name + "_count");
    const Value some = binary(ScalarOp::kMaximum, all, emission.constant({dtype, {}}, 1.0));
    mean = fold_lanes_of(fold, ReduceOp::kSum, binary(ScalarOp::kMul, means, binary(ScalarOp::kDiv, counts, some)),
                         mean_name);
  }
  if (fold.component == 0) return mean;
  const Value squares = equal ? value_of(fold.operands[1]) : masked_operand(fold, 1, ReduceOp::kSum);
  const Value shift = binary(ScalarOp::kSub, means, mean, mean_name + "_shift");
  const Value moved = binary(ScalarOp::kMul, binary(ScalarOp::kMul, counts, shift), shift);
  const Value sum = binary(ScalarOp::kAdd, squares, moved);
  return equal ? simple_fold(fold, ReduceOp::kSum, sum, std::nullopt, squares_name)
               : fold_lanes_of(fold, ReduceOp::kSum, sum, squares_name);
}

// Of parts with a maximum and a sum below it.
Value Values::combined_max_sum_exp(const Expr& fold) {
  const Value values = masked_operand(fold, 0, ReduceOp::kMax);
  const Value largest = fold_lanes_of(fold, ReduceOp::kMax, values, component_name(fold, 0));
  if (fold.component == 0) return largest;
  const Value difference = emission.op(ScalarOp::kSub, {values, largest}, fold.dtype, "difference");
  const Value power = emission.op(ScalarOp::kExp, {difference}, fold.dtype, "exponential");
  const Value share = emission.op(ScalarOp::kMul, {masked_operand(fold, 1, ReduceOp::kSum), power}, fold.dtype);
  return fold_lanes_of(fold, ReduceOp::kSum, share, component_name(fold, 1));
}

Value Values::max_sum_exp(const Expr& fold) {
  Expr maximum = fold;
  maximum.reduce = ReduceOp::kMax;
  const Value value = masked(maximum, value_of(fold.operands[0]), padding_.value(fold.operands[0]));
  maximum.component = 0;
  const Value largest = fold_lanes(maximum, value, component_name(fold, 0));
  if (fold.component == 0) return largest;
  const Value difference = emission.op(ScalarOp::kSub, {value, largest}, fold.dtype, "difference");
  const Value power = emission.op(ScalarOp::kExp, {difference}, fold.dtype, "exponential");
  return simple_fold(fold, ReduceOp::kSum, power, 0.0, component_name(fold, 1));
}

}  // namespace kw::lower
