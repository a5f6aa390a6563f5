#include "plan/bag_lowering.hpp"

#include <limits>

namespace kw::plan {

double value_outside(const Bags& bags) {
  return bags.mode == Bags::Mode::kMax ? -std::numeric_limits<double>::infinity() : 0.0;
}

ExprId lower_bag(const BagContext& c) {
  KernelBuilder& build = c.build;
  const DType dtype = build.dtype(c.value);
  const bool pads = c.bags.padding >= 0;
  ExprId counts = kNoExpr, value = c.value;
  if (pads) {
    counts = build.compare(ScalarOp::kNotEqual, build.index(c.element.row, DType::i32),
                           build.integer(c.bags.padding, DType::i32));
    if (const ExprId inside = build.all_of(c.element.guards); inside != kNoExpr)
      counts = build.op(ScalarOp::kLogicalAnd, DType::b1, {inside, counts});
    build.name(counts, "counts");
    value = build.select(counts, value, build.constant(value_outside(c.bags), dtype));
  }
  if (c.weight != kNoExpr) value = build.mul(value, c.weight);
  if (c.bags.mode == Bags::Mode::kSum) return build.reduce(ReduceOp::kSum, dtype, {value});
  ExprId count = build.sub(build.index(c.element.end, DType::i32), build.index(c.element.start, DType::i32));
  if (pads)
    count = build.reduce(ReduceOp::kSum, DType::i32,
                         {build.select(counts, build.integer(1, DType::i32), build.integer(0, DType::i32))});
  build.name(count, "count");
  if (c.bags.mode == Bags::Mode::kMean)
    return build.div(build.reduce(ReduceOp::kSum, dtype, {value}),
                     build.cast(build.binary(ScalarOp::kMaximum, count, build.integer(1, DType::i32)), dtype));
  const ExprId some = build.compare(ScalarOp::kGreater, count, build.integer(0, DType::i32));
  return build.select(some, build.reduce(ReduceOp::kMax, dtype, {value}), build.constant(0.0, dtype));
}

}  // namespace kw::plan
