#include "plan/kernel_builder.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::plan {

using flat::Access;
using flat::Expr;
using flat::ExprKind;

DType compute_dtype(DType dtype) { return is_narrow_float(dtype) ? DType::f32 : dtype; }

namespace {

void append(std::string& key, const Index& index) {
  key += '[' + std::to_string(index.constant);
  for (const kernel::Digit& digit : kernel::digits_of(index))
    for (int64_t number : {static_cast<int64_t>(digit.axis), digit.coefficient, digit.divisor, digit.modulus})
      key += ',' + std::to_string(number);
  key += ']';
}

std::string key_of(const Expr& expr) {
  std::string key;
  for (int number : {static_cast<int>(expr.kind), static_cast<int>(expr.dtype), static_cast<int>(expr.op),
                     static_cast<int>(expr.reduce), expr.component, static_cast<int>(expr.overwrites)})
    key += std::to_string(number) + ' ';
  for (ExprId operand : expr.operands) key += std::to_string(operand) + ' ';
  if (flat::is_load(expr) || expr.kind == ExprKind::kIndex) {
    key += '@' + std::to_string(expr.access.buffer) + "|" + format_double(expr.access.otherwise);
    append(key, expr.access.index);
  }
  for (const auto& guard : expr.access.guards) {
    append(key, guard.index);
    key += std::to_string(guard.lower) + ':' + std::to_string(guard.upper);
  }
  if (expr.kind == ExprKind::kScan) key += "first " + std::to_string(expr.integer);
  if (expr.kind == ExprKind::kConstant) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%a", expr.number);  // keeps -0.0 and every bit
    key += digits + std::string("#") + std::to_string(expr.integer);
  }
  return key;
}

}  // namespace

ExprId KernelBuilder::insert(Expr expr) {
  const auto [place, added] = known_.emplace(key_of(expr), static_cast<ExprId>(kernel_.exprs.size()));
  if (added) kernel_.exprs.push_back(std::move(expr));
  return place->second;
}

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
  expr.access.index = index;
  return insert(std::move(expr));
}

ExprId KernelBuilder::looked_up(const Index& index) {
  ExprId sum = flat::kNoExpr;
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
    if (term.coefficient == -1 && sum != flat::kNoExpr) {
      sum = sub(sum, part);
      continue;
    }
    part = mul(part, integer(term.coefficient, dtype));
    sum = sum == flat::kNoExpr ? part : add(sum, part);
  }
  return sum;
}

ExprId KernelBuilder::load(Access access, DType dtype) {
  Expr expr;
  expr.kind = ExprKind::kLoad;
  expr.dtype = dtype;
  if (lookups_) {
    std::vector<flat::Guard> affine, conditions;
    for (flat::Guard& guard : access.guards)
      (lookups_->is_lookup(guard.index) ? conditions : affine).push_back(std::move(guard));
    access.guards = std::move(affine);
    if (!conditions.empty() || lookups_->is_lookup(access.index)) {
      expr.kind = ExprKind::kGather;
      expr.operands = {lookups_->is_lookup(access.index) ? looked_up(access.index) : integer(0, DType::i32)};
      access.index = lookups_->affine_part(access.index);
      if (const ExprId condition = all_of(conditions); condition != flat::kNoExpr) expr.operands.push_back(condition);
    }
  }
  expr.access = std::move(access);
  return insert(std::move(expr));
}

ExprId KernelBuilder::scatter(Index& index, std::optional<ReduceOp> fold, ExprId value) {
  Expr expr;
  expr.kind = ExprKind::kScatter;
  expr.dtype = dtype(value);
  expr.overwrites = !fold.has_value();
  expr.reduce = fold.value_or(ReduceOp::kSum);
  expr.operands = {looked_up(index), value};
  index = lookups_->affine_part(index);
  return insert(std::move(expr));
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
  if (source.kind == ExprKind::kIndex && is_integral(dtype)) return index(source.access.index, dtype);
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
  return insert(std::move(expr));
}

ExprId KernelBuilder::reduce(ReduceOp code, DType dtype, std::vector<ExprId> operands, int component,
                             std::vector<flat::Guard> guards) {
  Expr expr;
  expr.kind = ExprKind::kReduce;
  expr.dtype = dtype;
  expr.reduce = code;
  expr.component = component;
  expr.access.guards = std::move(guards);
  expr.operands = std::move(operands);
  return insert(std::move(expr));
}

ExprId KernelBuilder::all_of(const std::vector<flat::Guard>& guards) {
  ExprId all = flat::kNoExpr;
  const std::vector<kernel::SymbolRange> own = flat::ranges_of(kernel_.axes);
  const SymbolRanges ranges = lookups_ ? lookups_->ranges() : SymbolRanges(own);
  auto require = [&](ExprId condition) {
    all = all == flat::kNoExpr ? condition : op(ScalarOp::kLogicalAnd, DType::b1, {all, condition});
  };
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
  return kernel::range_of(index, lookups_ ? lookups_->ranges() : SymbolRanges(flat::ranges_of(kernel_.axes))).high;
}

std::vector<bool> KernelBuilder::reduce_axes_of(ExprId value) const {
  std::vector<bool> axes = flat::axes_of_exprs(kernel_)[value];
  for (size_t axis = 0; axis < axes.size(); ++axis)
    axes[axis] = axes[axis] && kernel_.axes[axis].kind == flat::AxisKind::kReduce;
  return axes;
}

void KernelBuilder::name(ExprId value, const std::string& wanted) {
  Expr& expr = kernel_.exprs[value];
  if (!expr.name.empty() || expr.kind == ExprKind::kConstant || flat::is_load(expr) || wanted.empty()) return;
  std::string name = wanted;
  while (names_.contains(name)) name = wanted + "_" + std::to_string(++names_[wanted]);
  names_[name] = 1;
  expr.name = name;
}

void drop_unused(flat::Kernel& kernel) {
  std::vector<bool> needed(kernel.exprs.size(), false);
  for (const auto& store : kernel.stores) needed[store.value] = true;
  for (ExprId id = static_cast<ExprId>(kernel.exprs.size()) - 1; id >= 0; --id)
    if (needed[id])
      for (ExprId operand : kernel.exprs[id].operands) needed[operand] = true;
  std::vector<ExprId> moved(kernel.exprs.size(), flat::kNoExpr);
  std::vector<flat::Expr> kept;
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    if (!needed[id]) continue;
    moved[id] = static_cast<ExprId>(kept.size());
    kept.push_back(kernel.exprs[id]);
    for (ExprId& operand : kept.back().operands) operand = moved[operand];
  }
  for (auto& store : kernel.stores) store.value = moved[store.value];
  kernel.exprs = std::move(kept);
}

}  // namespace kw::plan
