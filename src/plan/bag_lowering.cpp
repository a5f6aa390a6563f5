#include "plan/bag_lowering.hpp"

#include <limits>

namespace kw::plan {

double value_outside(const Bags& bags) {
  return bags.mode == Bags::Mode::kMax ? -std::numeric_limits<double>::infinity() : 0.0;
}

ExprId lower_bag(const BagContext& c) {
  GroupBuilder& build = c.build;
  const DType dtype = build.dtype(c.value);
  const bool pads = c.bags.padding >= 0;
  ExprId counts = kNoExpr, value = c.value;
  if (pads) {
    counts = build.op(ScalarOp::kNotEqual,
                      {build.index(c.element.row, DType::i32), build.constant(DType::i32, c.bags.padding)});
    if (const ExprId inside = build.all_of(c.element.guards); inside != kNoExpr)
      counts = build.op(ScalarOp::kLogicalAnd, {inside, counts});
    build.name(counts, "counts");
    value = build.select(counts, value, build.constant(dtype, value_outside(c.bags)));
  }
  if (c.weight != kNoExpr) value = build.mul(value, c.weight);
  if (c.bags.mode == Bags::Mode::kSum) return build.reduce(ReduceOp::kSum, {value});
  ExprId count = build.sub(build.index(c.element.end, DType::i32), build.index(c.element.start, DType::i32));
  if (pads)
    count = build.reduce(ReduceOp::kSum,
                         {build.select(counts, build.constant(DType::i32, 1), build.constant(DType::i32, 0))});
  build.name(count, "count");
  if (c.bags.mode == Bags::Mode::kMean)
    return build.div(build.reduce(ReduceOp::kSum, {value}),
                     build.cast(dtype, build.op(ScalarOp::kMaximum, {count, build.constant(DType::i32, 1)})));
  const ExprId some = build.op(ScalarOp::kGreater, {count, build.constant(DType::i32, 0)});
  return build.select(some, build.reduce(ReduceOp::kMax, {value}), build.constant(dtype, 0.0));
}

}  // namespace kw::plan
