#include "kernel/builder.hpp"

#include <algorithm>
#include <functional>

#include "ir/numbers.hpp"
#include "support/error.hpp"

namespace kw::kernel {
namespace {

bool same_access(const Access& left, const Access& right) {
  return left.buffer == right.buffer && left.coordinates == right.coordinates && left.mask == right.mask &&
         same_bits(left.otherwise, right.otherwise);
}

// Apart from the name.
bool same(const Expr& left, const Expr& right) {
  return left.kind == right.kind && left.dtype == right.dtype && left.op == right.op && left.reduce == right.reduce &&
         left.component == right.component && left.reversed == right.reversed && left.precision == right.precision &&
         left.operands == right.operands && left.axes == right.axes && left.state == right.state &&
         left.index == right.index && same_bits(left.number, right.number) && left.integer == right.integer &&
         same_access(left.access, right.access);
}

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

}  // namespace

Builder::Builder(std::string name, std::string doc) {
  kernel_.name = std::move(name);
  kernel_.doc = std::move(doc);
}

Symbol Builder::size(std::string name, SymbolRange range) {
  kernel_.symbols.push_back({std::move(name), SymbolKind::kSize, range, {}, false});
  return static_cast<Symbol>(kernel_.symbols.size()) - 1;
}

Symbol Builder::axis(std::string name, Index extent, bool ordered) {
  const std::vector<SymbolRange> ranges = ranges_of(kernel_);
  const int64_t last = std::max<int64_t>(range_of(extent, ranges).high - 1, 0);
  kernel_.symbols.push_back({std::move(name), SymbolKind::kAxis, {0, last, 1}, std::move(extent), ordered});
  return static_cast<Symbol>(kernel_.symbols.size()) - 1;
}

int Builder::buffer(std::string name, DType dtype, std::vector<Index> shape, BufferRole role,
                    std::vector<Index> strides) {
  kernel_.buffers.push_back({std::move(name), dtype, std::move(shape), std::move(strides), role});
  return static_cast<int>(kernel_.buffers.size()) - 1;
}

ExprId Builder::add(Expr expr) {
  std::sort(expr.axes.begin(), expr.axes.end());
  for (size_t id = 0; id < kernel_.exprs.size(); ++id)
    if (same(kernel_.exprs[id], expr)) return static_cast<ExprId>(id);
  kernel_.exprs.push_back(std::move(expr));
  return static_cast<ExprId>(kernel_.exprs.size()) - 1;
}

ExprId Builder::constant(DType dtype, double number) {
  KW_ASSERT(is_floating(dtype), "a constant with a fraction of an integral type");
  Expr expr;
  expr.dtype = dtype;
  expr.number = number;
  return add(std::move(expr));
}

ExprId Builder::constant(DType dtype, int64_t integer) {
  if (is_floating(dtype)) return constant(dtype, static_cast<double>(integer));
  Expr expr;
  expr.dtype = dtype;
  expr.integer = integer;
  return add(std::move(expr));
}

ExprId Builder::index(Index index, DType dtype) {
  if (const auto number = as_constant(index)) return constant(dtype, *number);
  Expr expr;
  expr.kind = ExprKind::kIndex;
  expr.dtype = dtype;
  expr.index = std::move(index);
  return add(std::move(expr));
}

ExprId Builder::load(Access access) {
  Expr expr;
  expr.kind = ExprKind::kLoad;
  expr.dtype = kernel_.buffers[access.buffer].dtype;
  expr.access = std::move(access);
  return add(std::move(expr));
}

ExprId Builder::op(ScalarOp op, std::vector<ExprId> operands) {
  KW_ASSERT(op != ScalarOp::kCast, "a cast needs its type");
  const Expr& first = kernel_.exprs[operands[op == ScalarOp::kSelect ? 1 : 0]];
  if (operands.size() == 2) {
    const Expr& second = kernel_.exprs[operands[1]];
    const std::vector<SymbolRange> ranges = ranges_of(kernel_);
    const auto left = index_of(first), right = index_of(second);
    if (left && right && first.dtype == second.dtype)
      if (const auto index = combined(op, *left, *right, ranges); index && fits(*index, first.dtype, ranges))
        return this->index(*index, first.dtype);
  }
  Expr expr;
  expr.kind = ExprKind::kOp;
  expr.op = op;
  expr.dtype = is_predicate(op) ? DType::b1 : first.dtype;
  expr.operands = std::move(operands);
  return add(std::move(expr));
}

ExprId Builder::cast(DType dtype, ExprId operand) {
  if (kernel_.exprs[operand].dtype == dtype) return operand;
  Expr expr;
  expr.kind = ExprKind::kOp;
  expr.op = ScalarOp::kCast;
  expr.dtype = dtype;
  expr.operands = {operand};
  return add(std::move(expr));
}

ExprId Builder::reduce(ReduceOp reduce, std::vector<ExprId> operands, std::vector<Symbol> axes, int component) {
  Expr expr;
  expr.kind = ExprKind::kReduce;
  expr.reduce = reduce;
  const bool places = reduce == ReduceOp::kArgMax || reduce == ReduceOp::kArgMin;
  expr.dtype = places ? DType::i64 : kernel_.exprs[operands[0]].dtype;
  expr.component = component;
  expr.operands = std::move(operands);
  expr.axes = std::move(axes);
  return add(std::move(expr));
}

ExprId Builder::dot(ExprId left, ExprId right, std::vector<Symbol> axes, Precision precision) {
  Expr expr;
  expr.kind = ExprKind::kDot;
  expr.dtype = accumulator_of(kernel_.exprs[left].dtype);
  if (expr.dtype == DType::i64) expr.dtype = DType::i32;
  if (is_eight_bit_float(kernel_.exprs[left].dtype)) expr.dtype = DType::f32;
  expr.operands = {left, right};
  expr.axes = std::move(axes);
  expr.precision = precision;
  return add(std::move(expr));
}

ExprId Builder::scan(ReduceOp reduce, std::vector<ExprId> operands, Symbol axis, bool reversed, int component,
                     int64_t first) {
  Expr expr;
  expr.kind = ExprKind::kScan;
  expr.reduce = reduce;
  expr.component = component;
  expr.integer = first;
  const bool place = reduce == ReduceOp::kArgMax || reduce == ReduceOp::kArgMin;
  expr.dtype = place ? DType::i64 : kernel_.exprs[operands[static_cast<size_t>(component)]].dtype;
  expr.operands = std::move(operands);
  expr.axes = {axis};
  expr.reversed = reversed;
  return add(std::move(expr));
}

int Builder::state(std::string name, DType dtype, std::vector<Symbol> axes, Symbol along, ExprId initial) {
  kernel_.states.push_back({std::move(name), dtype, std::move(axes), along, initial, kNoExpr});
  return static_cast<int>(kernel_.states.size()) - 1;
}

ExprId Builder::previous(int state, std::vector<Index> coordinates) {
  Expr expr;
  expr.kind = ExprKind::kState;
  expr.state = state;
  expr.dtype = kernel_.states[state].dtype;
  for (Index& index : coordinates) expr.access.coordinates.push_back({std::move(index), kNoExpr});
  return add(std::move(expr));
}

void Builder::set_next(int state, ExprId next) { kernel_.states[state].next = next; }

ExprId Builder::named(std::string name, ExprId expr) {
  kernel_.exprs[expr].name = std::move(name);
  return expr;
}

void Builder::store(Access access, ExprId value, std::vector<Symbol> over) {
  kernel_.stores.push_back({std::move(access), value, false, {}, std::move(over)});
}

void Builder::combine(ReduceOp reduce, Access access, ExprId value, std::vector<Symbol> over) {
  kernel_.stores.push_back({std::move(access), value, true, reduce, std::move(over)});
}

std::vector<ExprId> Builder::drop_unused() {
  std::vector<bool> used(kernel_.exprs.size());
  const std::function<void(ExprId)> mark = [&](ExprId id) {
    if (id == kNoExpr || used[id]) return;
    used[id] = true;
    for (ExprId input : inputs_of(kernel_.exprs[id])) mark(input);
    if (kernel_.exprs[id].kind != ExprKind::kState) return;
    mark(kernel_.states[kernel_.exprs[id].state].initial);
    mark(kernel_.states[kernel_.exprs[id].state].next);
  };
  for (const Store& store : kernel_.stores) {
    mark(store.value);
    for (ExprId input : inputs_of(store.access)) mark(input);
  }
  for (const State& state : kernel_.states) {
    mark(state.initial);
    mark(state.next);
  }
  std::vector<ExprId> place(kernel_.exprs.size(), kNoExpr);
  std::vector<Expr> kept;
  for (size_t id = 0; id < used.size(); ++id) {
    if (!used[id]) continue;
    place[id] = static_cast<ExprId>(kept.size());
    kept.push_back(std::move(kernel_.exprs[id]));
  }
  const auto move = [&](ExprId& id) {
    if (id != kNoExpr) id = place[id];
  };
  const auto move_access = [&](Access& access) {
    for (Coordinate& coordinate : access.coordinates) move(coordinate.value);
    move(access.mask);
  };
  for (Expr& expr : kept) {
    for (ExprId& operand : expr.operands) move(operand);
    move_access(expr.access);
  }
  kernel_.exprs = std::move(kept);
  for (State& state : kernel_.states) {
    move(state.initial);
    move(state.next);
  }
  for (Store& store : kernel_.stores) {
    move(store.value);
    move_access(store.access);
  }
  return place;
}

Kernel Builder::finish() {
  drop_unused();
  check(kernel_);
  return std::move(kernel_);
}

}  // namespace kw::kernel
