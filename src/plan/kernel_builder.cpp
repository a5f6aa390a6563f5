#include "plan/kernel_builder.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kw::plan {

DType compute_dtype(DType dtype) { return is_narrow_float(dtype) ? DType::f32 : dtype; }

ExprId KernelBuilder::insert(Expr expr) { return table_.insert(kernel_, std::move(expr)); }

ExprId KernelBuilder::constant(double number, DType dtype) {
  Expr expr;
  expr.kind = ExprKind::kConstant;
  expr.dtype = dtype;
  if (is_floating(dtype)) expr.number = number;
  else
    expr.number = static_cast<double>(expr.integer = dtype == DType::b1 ? number != 0.0 : static_cast<int64_t>(number));
  return insert(std::move(expr));
}

ExprId KernelBuilder::integer(int64_t number, DType dtype) {
  if (is_floating(dtype)) return constant(static_cast<double>(number), dtype);
  Expr expr;
  expr.kind = ExprKind::kConstant;
  expr.dtype = dtype;
  expr.integer = dtype == DType::b1 ? number != 0 : number;
  expr.number = static_cast<double>(expr.integer);
  return insert(std::move(expr));
}

ExprId KernelBuilder::index(const Index& index, DType dtype) {
  if (const auto number = kernel::as_constant(index)) return integer(*number, dtype);
  if (lookups_ && lookups_->is_lookup(index)) {
    const ExprId affine = this->index(lookups_->affine_part(index), dtype);
    const ExprId moved = cast(looked_up(index), dtype);
    return is_constant(affine, 0.0) ? moved : add(moved, affine);
  }
  Expr expr;
  expr.kind = ExprKind::kIndex;
  expr.dtype = dtype;
  expr.index = index;
  return insert(std::move(expr));
}

ExprId KernelBuilder::looked_up(const Index& index) {
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
    ExprId part = cast(coordinate_(term.axis), dtype);
    if (term.divisor != 1) part = binary(ScalarOp::kFloorDiv, part, integer(term.divisor, dtype));
    if (term.modulus != 0) part = binary(ScalarOp::kRemainder, part, integer(term.modulus, dtype));
    if (term.coefficient == -1 && sum != kNoExpr) {
      sum = sub(sum, part);
      continue;
    }
    part = mul(part, integer(term.coefficient, dtype));
    sum = sum == kNoExpr ? part : add(sum, part);
  }
  return sum;
}

ExprId KernelBuilder::both(ExprId a, ExprId b) {
  if (a == kNoExpr || b == kNoExpr) return a == kNoExpr ? b : a;
  return op(ScalarOp::kLogicalAnd, DType::b1, {a, b});
}

ExprId KernelBuilder::mask_of(const std::vector<Guard>& guards) {
  ExprId all = kNoExpr;
  for (const Guard& guard : guards) {
    const ExprId place = index(guard.index, DType::i64);
    const auto bounded = [&](ScalarOp code, int64_t bound) {
      all = both(all, compare(code, place, integer(bound, DType::i64)));
    };
    if (guard.lower != std::numeric_limits<int64_t>::min()) bounded(ScalarOp::kGreaterEqual, guard.lower);
    if (guard.upper != std::numeric_limits<int64_t>::max()) bounded(ScalarOp::kLess, guard.upper);
  }
  return all;
}

ExprId KernelBuilder::load(Access access, const std::vector<Guard>& guards, DType dtype) {
  Expr expr;
  expr.kind = ExprKind::kLoad;
  expr.dtype = dtype;
  if (lookups_) {
    std::vector<Guard> affine, conditions;
    for (const Guard& guard : guards) (lookups_->is_lookup(guard.index) ? conditions : affine).push_back(guard);
    access.mask = mask_of(affine);
    Index& index = index_of(access);
    if (!conditions.empty() || lookups_->is_lookup(index)) {
      access.coordinates[0].value = lookups_->is_lookup(index) ? looked_up(index) : integer(0, DType::i32);
      index = lookups_->affine_part(index);
      access.mask = both(access.mask, all_of(conditions));
    }
  } else {
    access.mask = mask_of(guards);
  }
  expr.access = std::move(access);
  return insert(std::move(expr));
}

Store KernelBuilder::scatter(int buffer, const Index& index, std::optional<ReduceOp> fold, ExprId value) {
  Store store;
  store.access = element_at(buffer, lookups_->affine_part(index));
  store.access.coordinates[0].value = looked_up(index);
  store.value = value;
  store.combines = fold.has_value();
  store.reduce = fold.value_or(ReduceOp::kSum);
  return store;
}

bool KernelBuilder::is_constant(ExprId value, double number) const {
  const Expr& expr = kernel_.exprs[value];
  return expr.kind == ExprKind::kConstant && expr.number == number && std::signbit(expr.number) == std::signbit(number);
}

ExprId KernelBuilder::op(ScalarOp code, DType dtype, std::initializer_list<ExprId> operands) {
  const ExprId* operand = operands.begin();
  if (code == ScalarOp::kMul || code == ScalarOp::kDiv) {  // x · 1 and x / 1 are x, NaN and −0 included
    if (is_constant(operand[1], 1.0)) return operand[0];
    if (code == ScalarOp::kMul && is_constant(operand[0], 1.0)) return operand[1];
  }
  if (code == ScalarOp::kSub && is_constant(operand[1], 0.0)) return operand[0];
  if (code == ScalarOp::kAdd && !is_floating(dtype) && is_constant(operand[1], 0.0)) return operand[0];
  Expr expr;
  expr.kind = ExprKind::kOp;
  expr.dtype = dtype;
  expr.op = code;
  expr.operands = operands;
  return insert(std::move(expr));
}

ExprId KernelBuilder::cast(ExprId value, DType dtype) {
  const Expr& source = kernel_.exprs[value];
  if (source.dtype == dtype) return value;
  if (source.kind == ExprKind::kConstant && !is_eight_bit_float(dtype))
    return is_floating(source.dtype) ? constant(source.number, dtype) : integer(source.integer, dtype);
  // Back to what it was widened from.
  if (is_narrow_float(dtype) && source.kind == ExprKind::kOp && source.op == ScalarOp::kCast &&
      source.dtype == DType::f32 && kernel_.exprs[source.operands[0]].dtype == dtype)
    return source.operands[0];
  if (source.kind == ExprKind::kIndex && is_integral(dtype)) return index(Index(source.index), dtype);
  if (dtype == DType::b1) return compare(ScalarOp::kNotEqual, value, constant(0.0, source.dtype));
  return op(ScalarOp::kCast, dtype, {value});
}

ExprId KernelBuilder::scan(ReduceOp code, DType dtype, std::vector<ExprId> operands, int component, int64_t first) {
  Expr expr;
  expr.kind = ExprKind::kScan;
  expr.dtype = dtype;
  expr.integer = first;
  expr.reduce = code;
  expr.component = component;
  expr.operands = std::move(operands);
  expr.axes = {kernel_.parallel};
  return insert(std::move(expr));
}

ExprId KernelBuilder::reduce(ReduceOp code, DType dtype, std::vector<ExprId> operands, int component,
                             const std::vector<Guard>& guards) {
  Expr expr;
  expr.kind = ExprKind::kReduce;
  expr.dtype = dtype;
  expr.reduce = code;
  expr.component = component;
  expr.access.mask = mask_of(guards);
  expr.operands = std::move(operands);
  for (int axis = kernel_.parallel; axis < axis_count(kernel_); ++axis) expr.axes.push_back(axis);
  return insert(std::move(expr));
}

ExprId KernelBuilder::all_of(const std::vector<Guard>& guards) {
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
      require(compare(ScalarOp::kLess, index(affine - affine.constant, dtype),
                      above == 0 ? cast(end, dtype) : add(cast(end, dtype), integer(above, dtype))));
      continue;
    }
    const ExprId position = index(guard.index, dtype);
    if (range.low < guard.lower) require(compare(ScalarOp::kGreaterEqual, position, integer(guard.lower, dtype)));
    if (range.high >= guard.upper) require(compare(ScalarOp::kLess, position, integer(guard.upper, dtype)));
  }
  return all;
}

int64_t KernelBuilder::highest(const Index& index) const {
  return kernel::range_of(index, lookups_ ? lookups_->ranges() : SymbolRanges(kernel::ranges_of(kernel_))).high;
}

std::vector<bool> KernelBuilder::reduce_axes_of(ExprId value) const {
  std::vector<bool> axes = kernel::dependences(kernel_)[value];
  std::fill_n(axes.begin(), kernel_.parallel, false);
  return axes;
}

void KernelBuilder::name(ExprId value, const std::string& wanted) {
  Expr& expr = kernel_.exprs[value];
  if (!expr.name.empty() || expr.kind == ExprKind::kConstant || is_load(expr) || wanted.empty()) return;
  std::string name = wanted;
  while (names_.contains(name)) name = wanted + "_" + std::to_string(++names_[wanted]);
  names_[name] = 1;
  expr.name = name;
}

}  // namespace kw::plan
