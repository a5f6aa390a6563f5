#include "kernel/builder.hpp"

#include <algorithm>
#include <bit>

#include "support/error.hpp"

namespace kw::kernel {
namespace {

// The value of a whole number that is index algebra.
std::optional<Index> index_of(const Expr& expr) {
  if (expr.kind == ExprKind::kIndex) return expr.index;
  if (expr.kind == ExprKind::kConstant && (expr.dtype == DType::i32 || expr.dtype == DType::i64))
    return Index(expr.integer);
  return std::nullopt;
}

// What an operation makes of two indices, where that is one again. What divides a number that may be negative stays an
// operation: languages round its quotient in their own ways.
std::optional<Index> combined(ScalarOp op, const Index& left, const Index& right, SymbolRanges ranges) {
  switch (op) {
    case ScalarOp::kAdd: return left + right;
    case ScalarOp::kSub: return left - right;
    case ScalarOp::kMul: return left * right;
    case ScalarOp::kFloorDiv:
      if (range_of(right, ranges).low < 1 || range_of(left, ranges).low < 0) return std::nullopt;
      return floor_divide(left, right, ranges);
    case ScalarOp::kRemainder:
      if (range_of(right, ranges).low < 1 || range_of(left, ranges).low < 0) return std::nullopt;
      return modulo(left, right, ranges);
    default: return std::nullopt;
  }
}

// i32 arithmetic wraps and index algebra does not: they are the same only where nothing leaves the type.
bool fits(const Index& index, DType dtype, SymbolRanges ranges) {
  const Interval range = range_of(index, ranges);
  return dtype == DType::i64 || (range.low >= INT32_MIN && range.high <= INT32_MAX);
}

size_t hash_of(const Expr& expr) {
  size_t hash = 0;
  const auto add = [&](int64_t number) { hash = hash * 1000003 + static_cast<size_t>(number); };
  for (const int number : {static_cast<int>(expr.kind), static_cast<int>(expr.dtype), static_cast<int>(expr.op),
                           static_cast<int>(expr.reduce), expr.component, expr.access.buffer, expr.access.mask})
    add(number);
  for (const ExprId operand : expr.operands) add(operand);
  for (const Coordinate& coordinate : expr.access.coordinates) add(coordinate.index.constant);
  add(expr.index.constant);
  add(expr.integer);
  add(std::bit_cast<int64_t>(expr.number));
  return hash;
}

}  // namespace

ExprId ExprTable::insert(Kernel& kernel, Expr expr) {
  const size_t hash = hash_of(expr);
  const auto [first, last] = places_.equal_range(hash);
  for (auto place = first; place != last; ++place)
    if (is_same(kernel.exprs[place->second], expr)) return place->second;
  const auto id = static_cast<ExprId>(kernel.exprs.size());
  kernel.exprs.push_back(std::move(expr));
  places_.emplace(hash, id);
  return id;
}

Builder::Builder(std::string name, std::string doc) : own_(std::make_unique<Kernel>()), kernel_(own_.get()) {
  kernel_->name = std::move(name);
  kernel_->doc = std::move(doc);
}

Symbol Builder::size(std::string name, SymbolRange range) {
  kernel_->symbols.push_back({std::move(name), SymbolKind::kSize, range, {}, false});
  return static_cast<Symbol>(kernel_->symbols.size()) - 1;
}

Symbol Builder::axis(std::string name, Index extent, bool ordered) {
  const std::vector<SymbolRange> ranges = ranges_of(*kernel_);
  const int64_t last = std::max<int64_t>(range_of(extent, ranges).high - 1, 0);
  kernel_->symbols.push_back({std::move(name), SymbolKind::kAxis, {0, last, 1}, std::move(extent), ordered});
  return static_cast<Symbol>(kernel_->symbols.size()) - 1;
}

int Builder::buffer(std::string name, DType dtype, std::vector<Index> shape, BufferRole role,
                    std::vector<Index> strides) {
  kernel_->buffers.push_back({std::move(name), dtype, std::move(shape), std::move(strides), role});
  return static_cast<int>(kernel_->buffers.size()) - 1;
}

ExprId Builder::insert(Expr expr) {
  std::sort(expr.axes.begin(), expr.axes.end());
  return table_.insert(*kernel_, std::move(expr));
}

ExprId Builder::constant(DType dtype, double number) {
  if (dtype == DType::b1) return constant(dtype, int64_t{number != 0.0});
  if (!is_floating(dtype)) return constant(dtype, static_cast<int64_t>(number));
  Expr expr;
  expr.dtype = dtype;
  expr.number = number;
  return insert(std::move(expr));
}

ExprId Builder::constant(DType dtype, int64_t integer) {
  if (is_floating(dtype)) return constant(dtype, static_cast<double>(integer));
  Expr expr;
  expr.dtype = dtype;
  expr.integer = dtype == DType::b1 ? integer != 0 : integer;
  return insert(std::move(expr));
}

ExprId Builder::index(Index index, DType dtype) {
  if (const auto number = as_constant(index)) return constant(dtype, *number);
  Expr expr;
  expr.kind = ExprKind::kIndex;
  expr.dtype = dtype;
  expr.index = std::move(index);
  return insert(std::move(expr));
}

ExprId Builder::load(Access access) {
  Expr expr;
  expr.kind = ExprKind::kLoad;
  expr.dtype = kernel_->buffers[access.buffer].dtype;
  expr.access = std::move(access);
  return insert(std::move(expr));
}

DType Builder::dtype_of(ScalarOp op, const std::vector<ExprId>& operands) const {
  KW_ASSERT(op != ScalarOp::kCast, "a cast needs its type");
  return is_predicate(op) ? DType::b1 : dtype(operands[op == ScalarOp::kSelect ? 1 : 0]);
}

ExprId Builder::operation(ScalarOp op, DType dtype, std::vector<ExprId> operands) {
  Expr expr;
  expr.kind = ExprKind::kOp;
  expr.op = op;
  expr.dtype = dtype;
  expr.operands = std::move(operands);
  return insert(std::move(expr));
}

ExprId Builder::op(ScalarOp op, std::vector<ExprId> operands) {
  if (operands.size() == 2) {
    const Expr &first = expr(operands[0]), &second = expr(operands[1]);
    const std::vector<SymbolRange> ranges = ranges_of(*kernel_);
    const auto left = index_of(first), right = index_of(second);
    if (left && right && first.dtype == second.dtype)
      if (const auto index = combined(op, *left, *right, ranges); index && fits(*index, first.dtype, ranges))
        return this->index(*index, first.dtype);
  }
  const DType dtype = dtype_of(op, operands);
  return operation(op, dtype, std::move(operands));
}

ExprId Builder::cast(DType dtype, ExprId operand) {
  return this->dtype(operand) == dtype ? operand : operation(ScalarOp::kCast, dtype, {operand});
}

ExprId Builder::both(ExprId a, ExprId b) {
  if (a == kNoExpr || b == kNoExpr) return a == kNoExpr ? b : a;
  return op(ScalarOp::kLogicalAnd, {a, b});
}

ExprId Builder::select(ExprId condition, ExprId yes, ExprId no) {
  return condition == kNoExpr ? yes : op(ScalarOp::kSelect, {condition, yes, no});
}

ExprId Builder::reduce(ReduceOp reduce, std::vector<ExprId> operands, std::vector<Symbol> axes, int component,
                       ExprId mask) {
  Expr expr;
  expr.kind = ExprKind::kReduce;
  expr.reduce = reduce;
  const bool places = reduce == ReduceOp::kArgMax || reduce == ReduceOp::kArgMin;
  expr.dtype = places ? DType::i64 : kernel_->exprs[operands[0]].dtype;
  expr.component = component;
  expr.access.mask = mask;
  expr.operands = std::move(operands);
  expr.axes = std::move(axes);
  return insert(std::move(expr));
}

ExprId Builder::dot(ExprId left, ExprId right, std::vector<Symbol> axes, Precision precision) {
  Expr expr;
  expr.kind = ExprKind::kDot;
  expr.dtype = accumulator_of(kernel_->exprs[left].dtype);
  if (expr.dtype == DType::i64) expr.dtype = DType::i32;
  if (is_eight_bit_float(kernel_->exprs[left].dtype)) expr.dtype = DType::f32;
  expr.operands = {left, right};
  expr.axes = std::move(axes);
  expr.precision = precision;
  return insert(std::move(expr));
}

ExprId Builder::scan(ReduceOp reduce, std::vector<ExprId> operands, Symbol axis, bool reversed, int component,
                     int64_t first) {
  Expr expr;
  expr.kind = ExprKind::kScan;
  expr.reduce = reduce;
  expr.component = component;
  expr.integer = first;
  const bool place = reduce == ReduceOp::kArgMax || reduce == ReduceOp::kArgMin;
  expr.dtype = place ? DType::i64 : kernel_->exprs[operands[static_cast<size_t>(component)]].dtype;
  expr.operands = std::move(operands);
  expr.axes = {axis};
  expr.reversed = reversed;
  return insert(std::move(expr));
}

int Builder::state(std::string name, DType dtype, std::vector<Symbol> axes, Symbol along, ExprId initial) {
  kernel_->states.push_back({std::move(name), dtype, std::move(axes), along, initial, kNoExpr});
  return static_cast<int>(kernel_->states.size()) - 1;
}

ExprId Builder::previous(int state, std::vector<Index> coordinates) {
  Expr expr;
  expr.kind = ExprKind::kState;
  expr.state = state;
  expr.dtype = kernel_->states[state].dtype;
  for (Index& index : coordinates) expr.access.coordinates.push_back({std::move(index), kNoExpr});
  return insert(std::move(expr));
}

void Builder::set_next(int state, ExprId next) { kernel_->states[state].next = next; }

ExprId Builder::named(std::string name, ExprId expr) {
  kernel_->exprs[expr].name = std::move(name);
  return expr;
}

void Builder::store(Access access, ExprId value, std::vector<Symbol> over) {
  kernel_->stores.push_back({std::move(access), value, false, {}, std::move(over)});
}

void Builder::combine(ReduceOp reduce, Access access, ExprId value, std::vector<Symbol> over) {
  kernel_->stores.push_back({std::move(access), value, true, reduce, std::move(over)});
}

std::vector<ExprId> Builder::drop_unused() {
  std::vector<ExprId> place = kernel::drop_unused(*kernel_);
  table_ = {};
  std::vector<Expr> exprs;
  exprs.swap(kernel_->exprs);
  for (Expr& expr : exprs) table_.insert(*kernel_, std::move(expr));
  return place;
}

Kernel Builder::finish() {
  kernel::drop_unused(*kernel_);
  check(*kernel_);
  return std::move(*kernel_);
}

}  // namespace kw::kernel
