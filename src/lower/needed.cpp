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
  std::vector<ExprId> common;
  for (size_t at = 0; at < folds.size(); ++at) {
    const Expr& fold = kernel.exprs[folds[at]];
    const bool simple = fold.reduce == kernel::ReduceOp::kSum || fold.reduce == kernel::ReduceOp::kMax ||
                        fold.reduce == kernel::ReduceOp::kMin;
    if (fold.kind != ExprKind::kReduce || !simple) return kernel::kNoExpr;
    const ExprId operand = fold.operands[0];
    const std::vector<ExprId> own = stops.of_value(operand, kernel::identity(fold.reduce, kernel.exprs[operand].dtype));
    if (at == 0) common = own;
    std::erase_if(common, [&](ExprId one) { return std::find(own.begin(), own.end(), one) == own.end(); });
  }
  return common.empty() ? kernel::kNoExpr : common.front();
}

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
