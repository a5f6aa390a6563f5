#include "lower/needed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernel/scalar_values.hpp"
#include "lower/online.hpp"
#include "lower/place_conditions.hpp"

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

// What a condition asks of the axis; of two that say something of one end, what the first says.
Range range_of(const kernel::Kernel& kernel, ExprId condition, kernel::Symbol axis, bool not_) {
  Range range;
  for (const Index& place : asked_of_places(kernel, condition, not_)) {
    const auto linear = kernel::linear_in(place, axis);
    if (!linear) continue;
    if (linear->coefficient == Index(-1) && !range.end) range.end = linear->rest + Index(1);
    if (linear->coefficient == Index(1) && !range.first) range.first = Index(0) - linear->rest;
  }
  return range;
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

namespace {

// The largest of an index among a block's points; nullopt where it is not linear along a lane.
std::optional<tile::Index> largest_in_block(const Mapped& mapped, tile::Index index) {
  for (tile::Symbol lane : tile::lanes_of(mapped.program, index)) {
    const auto linear = kernel::linear_in(index, lane);
    const auto slope = linear ? kernel::as_constant(linear->coefficient) : std::nullopt;
    if (!slope) return std::nullopt;
    index = linear->rest + tile::Index(*slope > 0 ? *slope * (tile::width_of(mapped.program, lane) - 1) : 0);
  }
  return index;
}

// The largest among the blocks that run as one, as each of them finds it.
std::optional<tile::Index> largest_of_consumers(const Mapped& mapped, const tile::Index& index,
                                                kernel::SymbolRanges ranges) {
  const tile::Consumers& consumers = mapped.consumers;
  if (consumers.count == 1 || consumers.along < 0 || !kernel::uses(index, consumers.along)) return index;
  const auto linear = kernel::linear_in(index, consumers.along);
  const auto slope = linear ? kernel::as_constant(linear->coefficient) : std::nullopt;
  if (!slope) return std::nullopt;
  const tile::Index first = kernel::floor_divide(kernel::symbol_index(consumers.along), consumers.count, ranges) *
                            tile::Index(consumers.count);
  return linear->rest + tile::Index(*slope) * (first + tile::Index(*slope > 0 ? consumers.count - 1 : 0));
}

// 1 where the index is 0 or more, 0 where it is less; by quotients of what is never negative, as `start_of`.
tile::Index is_reached(const tile::Index& index, kernel::Interval range, kernel::SymbolRanges ranges) {
  const auto half = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(-range.low, range.high + 1))));
  if (index.constant < 0) return kernel::floor_divide(index + tile::Index(half), half, ranges);
  return tile::Index(1) - kernel::floor_divide(tile::Index(half - 1) - index, half, ranges);
}

// One step in blocks where nothing that is stored takes folds in, else all: the result of a fold is always there.
// `asked`: of the places that do (place_conditions.hpp).
tile::Index end_where_used(const Values& values, const MappedLoop& loop, const std::vector<Index>& asked) {
  const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(values.mapped.program);
  const auto points = kernel::as_constant(loop.end);
  if (!points || *points <= loop.step) return loop.end;
  tile::Index used(1);  // 1 or 0
  for (const Index& place : asked) {
    auto largest = largest_in_block(values.mapped, values.mapped.translate(place));
    if (largest) largest = largest_of_consumers(values.mapped, *largest, ranges);
    if (!largest || values.emission.depth_of(*largest) > values.emission.depth()) continue;
    const kernel::Interval range = kernel::range_of(*largest, ranges);
    if (range.low >= 0) continue;
    used = kernel::minimum(used, is_reached(*largest, range, ranges), ranges);
  }
  return tile::Index(loop.step) + tile::Index(*points - loop.step) * used;
}

}  // namespace

tile::Index bound_of(const Values& values, const MappedLoop& loop, const std::optional<std::vector<ExprId>>& folds) {
  const std::string& name = values.name_of(loop.axes[0]);
  if (!folds) values.refuse(fmt::format("axis '{}' is bounded, but its loop does more than fold", name));
  const auto bound = first_needless(values.kernel, *folds, loop.axes[0]);
  const std::vector<Index> asked = asked_where_used(values.kernel, *folds);
  if (!bound && !asked.empty() && loop.axes.size() == 1) return end_where_used(values, loop, asked);
  if (!bound || loop.axes.size() > 1)
    values.refuse(fmt::format("axis '{}' is bounded, but no mask says where its folds have all they need", name),
                  "A maximum of select(axis <= other, x, -inf) has one, sums of its exponentials, and products that "
                  "select(row <= column, product, 0.0) drops.");
  const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(values.mapped.program);
  const auto end = largest_in_block(values.mapped, values.mapped.translate(*bound));
  if (!end) values.refuse(fmt::format("axis '{}' is bounded by what is not linear along a tile", name));
  if (values.emission.depth_of(*end) > values.emission.depth() || kernel::range_of(loop.end - *end, ranges).low < 0)
    values.refuse(fmt::format("axis '{}' is bounded by what may lie beyond its end", name),
                  "Take widths of blocks that divide their axes.");
  if (kernel::range_of(*end, ranges).low < 1)  // a sum of nothing is 0, one of nothing but exp(-inf - -inf) is not
    values.refuse(fmt::format("axis '{}' is bounded, and some blocks may have no point of it", name));
  return *end;
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
