#include "lower/needed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernel/scalar_values.hpp"
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

// Points of an axis that a condition leaves: from `first` on, below `end`; nullopt: it does not say.
struct Range {
  std::optional<Index> first, end;
};

// A whole number that is made of axes and constants.
std::optional<Index> index_of(const kernel::Kernel& kernel, ExprId id) {
  const Expr& expr = kernel.exprs[id];
  if (expr.kind == ExprKind::kIndex) return expr.index;
  if (is_floating(expr.dtype)) return std::nullopt;
  if (expr.kind == ExprKind::kConstant) return Index(expr.integer);
  if (expr.kind != ExprKind::kOp) return std::nullopt;
  if (expr.op == ScalarOp::kCast && size_of(expr.dtype) >= 4) return index_of(kernel, expr.operands[0]);
  if (expr.op != ScalarOp::kAdd && expr.op != ScalarOp::kSub) return std::nullopt;
  const auto left = index_of(kernel, expr.operands[0]), right = index_of(kernel, expr.operands[1]);
  if (!left || !right) return std::nullopt;
  return expr.op == ScalarOp::kAdd ? *left + *right : *left - *right;
}

// Where both hold: of two that say something of one end, what the first says.
Range both(Range range, Range other) {
  if (!range.first) range.first = std::move(other.first);
  if (!range.end) range.end = std::move(other.end);
  return range;
}

// What the condition, or that a number is not 0, asks of the axis; `not_`: what it asks where it does not hold.
Range range_of(const kernel::Kernel& kernel, ExprId id, kernel::Symbol axis, bool not_) {
  const Expr& condition = kernel.exprs[id];
  if (condition.kind != ExprKind::kOp) return {};
  if (condition.op == ScalarOp::kLogicalNot) return range_of(kernel, condition.operands[0], axis, !not_);
  if (condition.op == (not_ ? ScalarOp::kLogicalOr : ScalarOp::kLogicalAnd)) {
    return both(range_of(kernel, condition.operands[0], axis, not_),
                range_of(kernel, condition.operands[1], axis, not_));
  }
  const auto is_zero = [&](ExprId operand) {
    const Expr& expr = kernel.exprs[operand];
    return expr.kind == ExprKind::kConstant && (is_floating(expr.dtype) ? expr.number == 0.0 : expr.integer == 0);
  };
  // A mask of ones and zeros, as tril and triu make one: not 0 where both conditions hold.
  if (condition.op == ScalarOp::kSelect && !not_ && is_zero(condition.operands[2])) {
    return both(range_of(kernel, condition.operands[0], axis, not_),
                range_of(kernel, condition.operands[1], axis, not_));
  }
  if (condition.op == ScalarOp::kCast) return range_of(kernel, condition.operands[0], axis, not_);
  if ((condition.op == ScalarOp::kEqual || condition.op == ScalarOp::kNotEqual) && is_zero(condition.operands[1]))
    return range_of(kernel, condition.operands[0], axis, not_ != (condition.op == ScalarOp::kEqual));
  const bool less = condition.op == ScalarOp::kLess || condition.op == ScalarOp::kLessEqual,
             greater = condition.op == ScalarOp::kGreater || condition.op == ScalarOp::kGreaterEqual;
  if (!less && !greater) return {};
  const auto left = index_of(kernel, condition.operands[0]), right = index_of(kernel, condition.operands[1]);
  if (!left || !right) return {};
  // difference < 0, or <= 0
  const bool smaller_first = less != not_;
  const bool or_equal = (condition.op == ScalarOp::kLessEqual || condition.op == ScalarOp::kGreaterEqual) != not_;
  const auto linear = kernel::linear_in(smaller_first ? *left - *right : *right - *left, axis);
  if (!linear) return {};
  if (linear->coefficient == Index(1)) return {{}, Index(or_equal ? 1 : 0) - linear->rest};
  if (linear->coefficient == Index(-1)) return {linear->rest + Index(or_equal ? 0 : 1), {}};
  return {};
}

class Stops {
 public:
  Stops(const kernel::Kernel& kernel, kernel::Symbol axis) : kernel_(kernel), axis_(axis) {}

  // Of a value that is `identity` from each of them on.
  std::vector<ExprId> of_value(ExprId id, const kernel::Number& identity) const {
    const Expr& expr = kernel_.exprs[id];
    const double number = kernel::is_real(expr.dtype) ? identity.real : static_cast<double>(identity.whole);
    if (expr.kind == ExprKind::kLoad)
      return expr.access.mask != kernel::kNoExpr && expr.access.otherwise == number ? of_condition(expr.access.mask)
                                                                                    : std::vector<ExprId>{};
    if (expr.kind != ExprKind::kOp) return {};
    if (expr.op == ScalarOp::kCast) return of_value(expr.operands[0], identity);
    if (expr.op == ScalarOp::kSelect) {
      if (!is_constant(expr.operands[2], number)) return {};
      std::vector<ExprId> stops = of_condition(expr.operands[0]);
      const std::vector<ExprId> inner = of_value(expr.operands[1], identity);
      stops.insert(stops.end(), inner.begin(), inner.end());
      return stops;
    }
    // A product is 0 where both of its factors are.
    if (expr.op != ScalarOp::kMul || number != 0.0) return {};
    std::vector<ExprId> left = of_value(expr.operands[0], identity);
    const std::vector<ExprId> right = of_value(expr.operands[1], identity);
    std::erase_if(left, [&](ExprId one) { return std::find(right.begin(), right.end(), one) == right.end(); });
    return left;
  }

 private:
  bool is_constant(ExprId id, double number) const {
    const Expr& expr = kernel_.exprs[id];
    return expr.kind == ExprKind::kConstant &&
           (is_floating(expr.dtype) ? expr.number : static_cast<double>(expr.integer)) == number;
  }

  // The axis itself, perhaps cast to another integer.
  bool is_place(ExprId id) const {
    const Expr& expr = kernel_.exprs[id];
    if (expr.kind == ExprKind::kOp && expr.op == ScalarOp::kCast) return is_place(expr.operands[0]);
    return expr.kind == ExprKind::kIndex && kernel::as_symbol(expr.index) == axis_;
  }

  std::vector<ExprId> of_condition(ExprId id) const {
    const Expr& expr = kernel_.exprs[id];
    if (expr.kind != ExprKind::kOp) return {};
    if (expr.op == ScalarOp::kLogicalAnd) {
      std::vector<ExprId> stops = of_condition(expr.operands[0]);
      const std::vector<ExprId> others = of_condition(expr.operands[1]);
      stops.insert(stops.end(), others.begin(), others.end());
      return stops;
    }
    const bool less = expr.op == ScalarOp::kLess && is_place(expr.operands[0]);
    return less ? std::vector<ExprId>{expr.operands[1]} : std::vector<ExprId>{};
  }

  const kernel::Kernel& kernel_;
  const kernel::Symbol axis_;
};

}  // namespace

ExprId stop_of(const kernel::Kernel& kernel, const std::vector<ExprId>& folds, kernel::Symbol axis) {
  const Stops stops(kernel, axis);
  const auto of_fold = [&](ExprId id) {
    const Expr& fold = kernel.exprs[id];
    const bool simple = fold.reduce == kernel::ReduceOp::kSum || fold.reduce == kernel::ReduceOp::kMax ||
                        fold.reduce == kernel::ReduceOp::kMin;
    std::vector<ExprId> found;
    const auto add = [&](ExprId operand, kernel::ReduceOp neutral) {
      const std::vector<ExprId> one = stops.of_value(operand, kernel::identity(neutral, kernel.exprs[operand].dtype));
      found.insert(found.end(), one.begin(), one.end());
    };
    if (fold.kind == ExprKind::kReduce && simple) add(fold.operands[0], fold.reduce);
    if (const std::optional<OnlineSum> sum = online_sum(kernel, id); sum && sum->exponent != kernel::kNoExpr)
      add(sum->exponent, kernel::ReduceOp::kMax);
    return found;
  };
  std::vector<ExprId> common;
  for (size_t at = 0; at < folds.size(); ++at) {
    const std::vector<ExprId> own = of_fold(folds[at]);
    if (at == 0) common = own;
    std::erase_if(common, [&](ExprId one) { return std::find(own.begin(), own.end(), one) == own.end(); });
  }
  return common.empty() ? kernel::kNoExpr : common.front();
}

namespace {

// What all of these folds have in common: where they have no common end, or begin, that is nullopt.
Range needed_by(const kernel::Kernel& kernel, const std::vector<ExprId>& folds, kernel::Symbol axis) {
  std::optional<Range> common;
  for (ExprId id : folds) {
    const ExprId masked = masked_operand(kernel, id);
    if (masked == kernel::kNoExpr) return {};
    const Expr& select = kernel.exprs[masked];
    if (select.kind != ExprKind::kOp || select.op != ScalarOp::kSelect) return {};
    const bool is_filled = is_lowest(kernel.exprs[select.operands[1]]);
    if (!is_filled && !is_lowest(kernel.exprs[select.operands[2]])) return {};
    Range range = range_of(kernel, select.operands[0], axis, is_filled);
    if (!common) common = range;
    if (!range.first || !common->first || !(*range.first == *common->first)) common->first.reset();
    if (!range.end || !common->end || !(*range.end == *common->end)) common->end.reset();
  }
  return common.value_or(Range{});
}

}  // namespace

std::optional<Index> first_needless(const kernel::Kernel& kernel, const std::vector<ExprId>& folds,
                                    kernel::Symbol axis) {
  return needed_by(kernel, folds, axis).end;
}

tile::Index bound_of(const Values& values, const MappedLoop& loop, const std::optional<std::vector<ExprId>>& folds) {
  const std::string& name = values.name_of(loop.axes[0]);
  if (!folds) values.refuse(fmt::format("axis '{}' is bounded, but its loop does more than fold", name));
  const auto bound = first_needless(values.kernel, *folds, loop.axes[0]);
  if (!bound || loop.axes.size() > 1)
    values.refuse(fmt::format("axis '{}' is bounded, but no mask says where its folds have all they need", name),
                  "A maximum of select(axis <= other, x, -inf) has one, and sums of its exponentials.");
  const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(values.mapped.program);
  tile::Index end = values.mapped.translate(*bound);
  for (tile::Symbol lane : tile::lanes_of(values.mapped.program, end)) {
    const auto linear = kernel::linear_in(end, lane);
    if (!linear || !kernel::as_constant(linear->coefficient))
      values.refuse(fmt::format("axis '{}' is bounded by what is not linear along a tile", name));
    const int64_t slope = *kernel::as_constant(linear->coefficient);
    const int64_t widest = tile::width_of(values.mapped.program, lane) - 1;
    end = linear->rest + tile::Index(slope > 0 ? slope * widest : 0);
  }
  if (values.emission.depth_of(end) > values.emission.depth() || kernel::range_of(loop.end - end, ranges).low < 0)
    values.refuse(fmt::format("axis '{}' is bounded by what may lie beyond its end", name),
                  "Take widths of blocks that divide their axes.");
  if (kernel::range_of(end, ranges).low < 1)  // a sum of nothing is 0, one of nothing but exp(-inf - -inf) is not
    values.refuse(fmt::format("axis '{}' is bounded, and some blocks may have no point of it", name));
  return end;
}

tile::Index start_of(const Values& values, const MappedLoop& loop, const std::vector<ExprId>& folds) {
  const auto first = needed_by(values.kernel, folds, loop.axes[0]).first;
  if (!first || loop.axes.size() > 1) return 0;
  tile::Index start = values.mapped.translate(*first);
  for (tile::Symbol lane : tile::lanes_of(values.mapped.program, start)) {
    const auto linear = kernel::linear_in(start, lane);
    const auto slope = linear ? kernel::as_constant(linear->coefficient) : std::nullopt;
    if (!slope) return 0;
    start = linear->rest + tile::Index(*slope < 0 ? *slope * (tile::width_of(values.mapped.program, lane) - 1) : 0);
  }
  // slope · block + constant, of which whole steps are left out: max(0, slope / step · block − behind) of them.
  if (start.terms.size() != 1 || start.terms[0].factors.size() != 1 || start.constant >= 0) return 0;
  const auto block = start.terms[0].factors[0].symbol;
  const int64_t slope = start.terms[0].coefficient;
  if (block < 0 || values.mapped.program.symbols[block].kind != tile::SymbolKind::kGrid || slope <= 0 ||
      slope % loop.step != 0)
    return 0;
  const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(values.mapped.program);
  const int64_t steps = slope / loop.step, behind = (-start.constant + loop.step - 1) / loop.step,
                blocks = (behind + steps - 1) / steps, many = ranges[block].high + 1 + blocks;
  // Of numbers that are never negative: the quotient is 0 for the first `blocks`, and then 1.
  const tile::Index shifted = kernel::symbol_index(block) + tile::Index(many - blocks);
  const tile::Index left_out = kernel::modulo(shifted, many, ranges) * tile::Index(steps) +
                               tile::Index(steps * blocks - behind);
  return left_out * kernel::floor_divide(shifted, many, ranges) * tile::Index(loop.step);
}

tile::Value latest_of(Values& values, tile::Value number) {
  const tile::TileType& type = values.emission.type(number);
  if (type.lanes.empty()) return number;
  tile::Instruction latest;
  latest.kind = tile::Kind::kFold;
  latest.reduce = kernel::ReduceOp::kMax;
  latest.operands = {number};
  latest.lanes = type.lanes;
  return values.emission.add(std::move(latest), {{type.dtype, {}}}, "latest")[0];
}

}  // namespace kw::lower
