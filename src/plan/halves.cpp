#include "plan/halves.hpp"

#include <algorithm>

namespace kw::plan {

using kernel::ExprId;
using kernel::Symbol;
using Role = OperandDimension::Role;

namespace {

constexpr int64_t kRowAlignment = 8;  // halves: 16 bytes, as the bulk copy engine wants the beginnings of rows
// A row has small numbers where more than a few lie so far below its largest that their second half, or their only one,
// is subnormal (docs/precision.md).
constexpr double kSmall = 0x1p-4, kSmallOfOne = 0x1p-15, kLarge = 0x1p2;  // of the scaled row, whose largest is 2^14 to
                                                                          // 2^15
constexpr int64_t kShareOfFew = 64, kLeastLarge = 32;                     // few: a 64th

}  // namespace

Shape extents_of(const std::vector<OperandDimension>& dimensions) {
  Shape shape;
  for (const OperandDimension& one : dimensions) shape.push_back(one.extent);
  return shape;
}

Shape strides_of(const std::vector<OperandDimension>& dimensions) {
  Shape strides;
  for (const OperandDimension& one : dimensions) strides.push_back(one.stride);
  return strides;
}

std::vector<OperandDimension> padded(std::vector<OperandDimension> dimensions) {
  dimensions.back().extent = (dimensions.back().extent + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  return dimensions;
}

Shape padded_strides(const std::vector<OperandDimension>& dimensions) {
  Shape strides(dimensions.size(), 1);
  int64_t next = padded(dimensions).back().extent;
  for (size_t dim = dimensions.size() - 1; dim-- > 0;) {
    strides[dim] = next;
    next *= dimensions[dim].extent;
  }
  return strides;
}

std::vector<OperandDimension> without_depth(std::vector<OperandDimension> dimensions) {
  std::erase_if(dimensions, [](const OperandDimension& one) { return one.role == Role::kDepth; });
  return dimensions;
}

std::vector<OperandDimension> dimensions_of(const Product& product, Side side) {
  const bool left = side == Side::kLeft;
  const ProductOperand& operand = left ? product.left : product.right;
  std::vector<OperandDimension> dimensions;
  for (size_t axis = 0; axis < product.batch.size(); ++axis)
    if (operand.batch[axis] != 0)
      dimensions.push_back({Role::kBatch, static_cast<int>(axis), product.batch[axis], operand.batch[axis]});
  OperandDimension outer{Role::kOuter, -1, left ? product.rows : product.columns, left ? operand.row : operand.column};
  OperandDimension depth{Role::kDepth, -1, product.depth, operand.depth};
  if (outer.stride < depth.stride) std::swap(outer, depth);
  dimensions.push_back(outer);
  dimensions.push_back(depth);
  return dimensions;
}

// Numbers are counted by clamps to between 0 and 1, not by comparisons, for which a multiprocessor has half as many
// units as for additions: those near the largest not before they surely are, small ones as soon as they may be.
LostDigits lost_digits(kernel::Builder& build, ExprId scaled, const std::vector<Symbol>& along, int64_t count,
                       const std::string& before, Halves halves) {
  using kernel::ScalarOp;
  const auto number = [&](double value) { return build.constant(DType::f32, value); };
  const auto times = [&](ExprId a, ExprId b) { return build.op(ScalarOp::kMul, {a, b}); };
  // No NaN: a row that has one is NaN throughout.
  const auto clamped = [&](ExprId value) {
    return build.op(ScalarOp::kFmin, {build.op(ScalarOp::kFmax, {value, number(0.0)}), number(1.0)});
  };
  const auto sum = [&](const std::string& name, ExprId value) {
    return build.named(before + name, build.reduce(kernel::ReduceOp::kSum, {value}, along));
  };
  const double small_size = halves == Halves::kTwo ? kSmall : kSmallOfOne;
  const ExprId size = build.op(ScalarOp::kAbs, {scaled});
  const ExprId is_small = clamped(build.op(ScalarOp::kSub, {number(2.0), times(size, number(1.0 / small_size))}));
  // Twice, since the smallest number is 2^-149.
  const ExprId is_not_zero = clamped(times(clamped(times(size, number(0x1p127))), number(0x1p127)));
  const ExprId small = sum("small", times(is_small, is_not_zero)),
               near = sum("near", clamped(build.op(ScalarOp::kSub, {size, number(kLarge)})));
  const int64_t share = count / kShareOfFew;
  const auto exactly = [&](int64_t value) { return number(static_cast<double>(value)); };
  const ExprId has_small = build.op(ScalarOp::kGreater, {small, exactly(share)});
  return {
      .near = build.cast(DType::i32, near),
      .small = small,
      .has_small = has_small,
      .loses = build.op(ScalarOp::kLogicalAnd,
                        {has_small, build.op(ScalarOp::kLess, {near, exactly(std::max(share, kLeastLarge))})}),
  };
}

HalvesOfRow halves_of_row(kernel::Builder& build, ExprId value, const std::vector<Symbol>& along, int64_t count,
                          const std::string& before, Halves of) {
  using kernel::ScalarOp;
  const auto number = [&](double value) { return build.constant(DType::f32, value); };
  const ExprId largest = build.named(before + "largest",
                                     build.reduce(kernel::ReduceOp::kMax, {build.op(ScalarOp::kAbs, {value})}, along));
  HalvesOfRow halves;
  const ExprId at_least = build.op(ScalarOp::kMaximum, {largest, number(0x1p-112)});
  halves.exponent = build.named(before + "exponent",
                                build.op(ScalarOp::kFloor, {build.op(ScalarOp::kLog2, {at_least})}));
  const ExprId factor = build.named(
      before + "factor", build.op(ScalarOp::kExp2, {build.op(ScalarOp::kSub, {number(14.0), halves.exponent})}));
  halves.scaled = build.named(before + "scaled", build.op(ScalarOp::kMul, {value, factor}));
  const LostDigits lost = lost_digits(build, halves.scaled, along, count, before, of);
  halves.near = lost.near;
  halves.small = lost.small;
  halves.has_small = lost.has_small;
  halves.loses = lost.loses;
  return halves;
}

ExprId scale_back(kernel::Builder& build, ExprId exponent) {
  return build.op(kernel::ScalarOp::kExp2,
                  {build.op(kernel::ScalarOp::kSub, {exponent, build.constant(DType::f32, 14.0)})});
}

SplitNumbers split_numbers(kernel::Builder& build, const HalvesOfRow& row, int64_t count, Halves of) {
  using kernel::ScalarOp;
  const bool two = of == Halves::kTwo;
  SplitNumbers numbers;
  numbers.high = build.cast(DType::f16, row.scaled);
  numbers.low = kernel::kNoExpr;
  if (two)
    numbers.low = build.cast(DType::f16, build.op(ScalarOp::kSub, {row.scaled, build.cast(DType::f32, numbers.high)}));
  numbers.scale = scale_back(build, row.exponent);
  numbers.near = row.near;
  const ExprId all = build.constant(DType::i32, count), none = build.constant(DType::i32, int64_t{-1});
  numbers.needs = build.op(ScalarOp::kSelect, {row.has_small, build.op(ScalarOp::kSub, {all, row.near}), none});
  return numbers;
}

bool SplitLayout::operator==(const SplitLayout& other) const {
  const auto is_alike = [](const OperandDimension& one, const OperandDimension& another) {
    return one.role == another.role && one.extent == another.extent && one.stride == another.stride;
  };
  return root == other.root && offset == other.offset && halves == other.halves &&
         std::equal(dimensions.begin(), dimensions.end(), other.dimensions.begin(), other.dimensions.end(), is_alike);
}

}  // namespace kw::plan
