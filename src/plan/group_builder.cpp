#include "plan/group_builder.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kw::plan {

DType compute_dtype(DType dtype) { return is_narrow_float(dtype) ? DType::f32 : dtype; }

ExprId GroupBuilder::index(const Index& index, DType dtype) {
  if (!lookups_ || !lookups_->is_lookup(index)) return Builder::index(index, dtype);
  const ExprId affine = Builder::index(lookups_->affine_part(index), dtype);
  const ExprId moved = cast(dtype, looked_up(index));
  return is_constant(affine, 0.0) ? moved : add(moved, affine);
}

ExprId GroupBuilder::looked_up(const Index& index) {
  ExprId sum = kNoExpr;
  // Index arithmetic of 64 bits costs a GPU twice that of 32.
  int64_t reach = 0;
  std::vector<kernel::Digit> digits = kernel::digits_of(index);
  std::erase_if(digits, [&](const kernel::Digit& digit) { return digit.axis < lookups_->own_axes(); });
  for (const kernel::Digit& digit : digits)
    reach += std::abs(digit.coefficient) * (lookups_->ranges()[digit.axis].high + 1);
  const DType dtype = reach <= std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
  // What is added before what is subtracted.
  std::stable_partition(digits.begin(), digits.end(), [](const kernel::Digit& one) { return one.coefficient > 0; });
  for (const kernel::Digit& term : digits) {
    ExprId part = cast(dtype, coordinate_(term.axis));
    if (term.divisor != 1) part = op(ScalarOp::kFloorDiv, {part, constant(dtype, term.divisor)});
    if (term.modulus != 0) part = op(ScalarOp::kRemainder, {part, constant(dtype, term.modulus)});
    if (term.coefficient == -1 && sum != kNoExpr) {
      sum = sub(sum, part);
      continue;
    }
    part = mul(part, constant(dtype, term.coefficient));
    sum = sum == kNoExpr ? part : add(sum, part);
  }
  return sum;
}

ExprId GroupBuilder::mask_of(const std::vector<Guard>& guards) {
  ExprId all = kNoExpr;
  for (const Guard& guard : guards) {
    const ExprId place = index(guard.index, DType::i64);
    const auto bounded = [&](ScalarOp code, int64_t bound) {
      all = both(all, op(code, {place, constant(DType::i64, bound)}));
    };
    if (guard.lower != std::numeric_limits<int64_t>::min()) bounded(ScalarOp::kGreaterEqual, guard.lower);
    if (guard.upper != std::numeric_limits<int64_t>::max()) bounded(ScalarOp::kLess, guard.upper);
  }
  return all;
}

ExprId GroupBuilder::load(Access access, const std::vector<Guard>& guards) {
  if (!lookups_) {
    access.mask = mask_of(guards);
    return Builder::load(std::move(access));
  }
  std::vector<Guard> affine, conditions;
  for (const Guard& guard : guards) (lookups_->is_lookup(guard.index) ? conditions : affine).push_back(guard);
  access.mask = mask_of(affine);
  Index& index = index_of(access);
  if (!conditions.empty() || lookups_->is_lookup(index)) {
    access.coordinates[0].value = lookups_->is_lookup(index) ? looked_up(index) : constant(DType::i32, 0);
    index = lookups_->affine_part(index);
    access.mask = both(access.mask, all_of(conditions));
  }
  return Builder::load(std::move(access));
}

Store GroupBuilder::scatter(int buffer, const Index& index, std::optional<ReduceOp> fold, ExprId value) {
  Store store;
  store.access = element_at(buffer, lookups_->affine_part(index));
  store.access.coordinates[0].value = looked_up(index);
  store.value = value;
  store.combines = fold.has_value();
  store.reduce = fold.value_or(ReduceOp::kSum);
  return store;
}

bool GroupBuilder::is_constant(ExprId value, double number) const {
  const Expr& one = expr(value);
  if (one.kind != ExprKind::kConstant) return false;
  const double held = is_floating(one.dtype) ? one.number : static_cast<double>(one.integer);
  return held == number && std::signbit(held) == std::signbit(number);
}

ExprId GroupBuilder::op(ScalarOp code, std::vector<ExprId> operands) {
  const DType dtype = dtype_of(code, operands);
  if (code == ScalarOp::kMul || code == ScalarOp::kDiv) {  // x · 1 and x / 1 are x, NaN and −0 included
    if (is_constant(operands[1], 1.0)) return operands[0];
    if (code == ScalarOp::kMul && is_constant(operands[0], 1.0)) return operands[1];
  }
  if (code == ScalarOp::kSub && is_constant(operands[1], 0.0)) return operands[0];
  if (code == ScalarOp::kAdd && !is_floating(dtype) && is_constant(operands[1], 0.0)) return operands[0];
  return operation(code, dtype, std::move(operands));
}

ExprId GroupBuilder::cast(DType dtype, ExprId value) {
  const Expr& source = expr(value);
  if (source.dtype == dtype) return value;
  if (source.kind == ExprKind::kConstant && !is_eight_bit_float(dtype))
    return is_floating(source.dtype) ? constant(dtype, source.number) : constant(dtype, source.integer);
  // Back to what it was widened from.
  if (is_narrow_float(dtype) && source.kind == ExprKind::kOp && source.op == ScalarOp::kCast &&
      source.dtype == DType::f32 && this->dtype(source.operands[0]) == dtype)
    return source.operands[0];
  if (source.kind == ExprKind::kIndex && is_integral(dtype)) return index(Index(source.index), dtype);
  if (dtype == DType::b1) return op(ScalarOp::kNotEqual, {value, constant(source.dtype, 0)});
  return Builder::cast(dtype, value);
}

ExprId GroupBuilder::scan(ReduceOp code, std::vector<ExprId> operands, int component, int64_t first) {
  return Builder::scan(code, std::move(operands), kernel_.parallel, false, component, first);
}

ExprId GroupBuilder::reduce(ReduceOp code, std::vector<ExprId> operands, int component,
                            const std::vector<Guard>& guards) {
  std::vector<kernel::Symbol> axes;
  for (int axis = kernel_.parallel; axis < axis_count(kernel_); ++axis) axes.push_back(axis);
  return Builder::reduce(code, std::move(operands), std::move(axes), component, mask_of(guards));
}

ExprId GroupBuilder::all_of(const std::vector<Guard>& guards) {
  ExprId all = kNoExpr;
  const std::vector<kernel::SymbolRange> own = kernel::ranges_of(kernel_);
  const SymbolRanges ranges = lookups_ ? lookups_->ranges() : SymbolRanges(own);
  auto require = [&](ExprId condition) { all = both(all, condition); };
  for (const auto& guard : guards) {
    const Interval range = range_of(guard.index, ranges);
    // What is looked up varies from lane to lane, for which 64 bits are dear.
    constexpr int64_t kNarrow = std::numeric_limits<int32_t>::max();
    const bool narrow = lookups_ && lookups_->is_lookup(guard.index) && range.low > -kNarrow && range.high < kNarrow &&
                        guard.upper < kNarrow;
    const DType dtype = narrow ? DType::i32 : DType::i64;
    if (narrow && range.low >= guard.lower && range.high >= guard.upper) {
      // Affine part < the rest, which a loop over that part finds before it begins.
      const Index affine = lookups_->affine_part(guard.index);
      const ExprId end = looked_up(affine - guard.index);
      const int64_t above = guard.upper - affine.constant;
      name(end, "length");
      require(op(ScalarOp::kLess, {index(affine - affine.constant, dtype),
                                   above == 0 ? cast(dtype, end) : add(cast(dtype, end), constant(dtype, above))}));
      continue;
    }
    const ExprId position = index(guard.index, dtype);
    if (range.low < guard.lower) require(op(ScalarOp::kGreaterEqual, {position, constant(dtype, guard.lower)}));
    if (range.high >= guard.upper) require(op(ScalarOp::kLess, {position, constant(dtype, guard.upper)}));
  }
  return all;
}

int64_t GroupBuilder::highest(const Index& index) const {
  return kernel::range_of(index, lookups_ ? lookups_->ranges() : SymbolRanges(kernel::ranges_of(kernel_))).high;
}

std::vector<bool> GroupBuilder::reduce_axes_of(ExprId value) const {
  std::vector<bool> axes = kernel::dependences(kernel_)[value];
  std::fill_n(axes.begin(), kernel_.parallel, false);
  return axes;
}

void GroupBuilder::name(ExprId value, const std::string& wanted) {
  Expr& expr = kernel_.exprs[value];
  if (!expr.name.empty() || expr.kind == ExprKind::kConstant || is_load(expr) || wanted.empty()) return;
  std::string name = wanted;
  while (names_.contains(name)) name = wanted + "_" + std::to_string(++names_[wanted]);
  names_[name] = 1;
  expr.name = name;
}

}  // namespace kw::plan
