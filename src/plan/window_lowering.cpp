#include "plan/window_lowering.hpp"

#include <limits>

namespace kw::plan {

namespace {

// How many elements a window has along one dimension; kNoExpr when `same` says it for all outputs.
ExprId count_along(GroupBuilder& build, const WindowDim& dim, bool counts_padding, const Index& output,
                   Lookups& lookups, int64_t& same) {
  if (dim.uneven) {
    const auto [start, end] = ends_of(dim, output, lookups);
    return build.sub(build.index(end, DType::i32), build.index(start, DType::i32));
  }
  const SymbolRanges ranges = lookups.ranges();
  const int64_t first = counts_padding ? -dim.padding : 0, end = dim.input + (counts_padding ? dim.padding : 0);
  Index low = output * dim.stride, high = low;
  low.constant -= dim.padding;
  high.constant += dim.kernel - dim.padding;
  const bool starts_outside = range_of(low, ranges).low<first, ends_outside = range_of(high, ranges).high> end;
  same = dim.kernel;
  if (!starts_outside && !ends_outside) return kNoExpr;
  ExprId from = build.index(low, DType::i32), to = build.index(high, DType::i32);
  if (starts_outside) from = build.op(ScalarOp::kMaximum, {from, build.constant(DType::i32, first)});
  if (ends_outside) to = build.op(ScalarOp::kMinimum, {to, build.constant(DType::i32, end)});
  return build.sub(to, from);
}

ExprId divisor(const WindowContext& c) {
  if (c.window.divisor != 0) return c.build.constant(c.dtype, static_cast<double>(c.window.divisor));
  const size_t count = c.window.dims.size(), leading = c.point.size() - 2 * count;
  int64_t constant = 1;
  ExprId varying = kNoExpr;
  for (size_t dim = 0; dim < count; ++dim) {
    int64_t same = 1;
    const ExprId one = count_along(c.build, c.window.dims[dim], c.window.counts_padding, c.point[leading + dim],
                                   c.lookups, same);
    if (one == kNoExpr) constant *= same;
    else varying = varying == kNoExpr ? one : c.build.mul(varying, one);
  }
  if (varying == kNoExpr) return c.build.constant(c.dtype, static_cast<double>(constant));
  const ExprId elements = c.build.mul(varying, c.build.constant(DType::i32, constant));
  c.build.name(elements, "window_size");
  return c.build.cast(c.dtype, elements);
}

}  // namespace

double value_outside(const Window& window) {
  return window.kind == Window::Kind::kMax ? -std::numeric_limits<double>::infinity() : 0.0;
}

ExprId pooled_position(GroupBuilder& build, ExprId value, ExprId largest, const Index& position,
                       const std::vector<Guard>& guards) {
  if (value == largest) return build.index(position, DType::i64);
  constexpr int64_t kNowhere = std::numeric_limits<int32_t>::max();
  const bool wide = build.highest(position) >= kNowhere;
  const DType dtype = wide ? DType::i64 : DType::i32;
  const ExprId here = build.index(position, dtype);
  const ExprId nowhere = build.constant(dtype, wide ? std::numeric_limits<int64_t>::max() : kNowhere),
               none = build.constant(dtype, -1);
  const ExprId equal = build.reduce(
      ReduceOp::kMin, {build.select(build.op(ScalarOp::kEqual, {value, largest}), here, nowhere)}, 0, guards);
  const ExprId is_nan = build.op(ScalarOp::kIsNan, {value});
  const ExprId nan = build.reduce(ReduceOp::kMax, {build.select(is_nan, here, none)}, 0, guards);
  build.name(equal, "first_largest_at");
  build.name(nan, "last_nan_at");
  return build.cast(DType::i64,
                    build.select(build.op(ScalarOp::kGreaterEqual, {nan, build.constant(dtype, 0)}), nan, equal));
}

std::vector<ExprId> lower_window(const WindowContext& c) {
  const Shape kernel = c.window.kernel_shape();
  const bool folds = product(kernel) > 1;
  const ExprId value = c.build.cast(c.dtype, c.operand);
  if (c.window.kind != Window::Kind::kMax) {
    const ExprId total = folds ? c.build.reduce(ReduceOp::kSum, {value}, 0, c.element.guards) : value;
    return {c.window.kind == Window::Kind::kAverage ? c.build.div(total, divisor(c)) : total};
  }
  const ExprId largest = folds ? c.build.reduce(ReduceOp::kMax, {value}, 0, c.element.guards) : value;
  std::vector<ExprId> results = {largest};
  if (c.results > 1) {
    const Coords spatial(c.element.coords.end() - static_cast<int64_t>(c.window.dims.size()), c.element.coords.end());
    Shape sizes;
    for (const WindowDim& dim : c.window.dims) sizes.push_back(dim.input);
    results.push_back(
        pooled_position(c.build, value, largest, linearise(spatial, sizes, c.lookups.ranges()), c.element.guards));
  }
  return results;
}

}  // namespace kw::plan
