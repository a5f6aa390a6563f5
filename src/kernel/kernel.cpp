#include "kernel/kernel.hpp"

#include <algorithm>
#include <functional>

#include "ir/numbers.hpp"

namespace kw::kernel {

std::vector<SymbolRange> ranges_of(const Kernel& kernel) {
  std::vector<SymbolRange> ranges;
  ranges.reserve(kernel.symbols.size());
  for (const SymbolInfo& symbol : kernel.symbols) ranges.push_back(symbol.range);
  return ranges;
}

std::vector<Symbol> axes_of(const Kernel& kernel) {
  std::vector<Symbol> axes;
  for (size_t symbol = 0; symbol < kernel.symbols.size(); ++symbol)
    if (kernel.symbols[symbol].kind == SymbolKind::kAxis) axes.push_back(static_cast<Symbol>(symbol));
  return axes;
}

std::vector<ExprId> inputs_of(const Access& access) {
  std::vector<ExprId> inputs;
  for (const Coordinate& coordinate : access.coordinates)
    if (coordinate.value != kNoExpr) inputs.push_back(coordinate.value);
  if (access.mask != kNoExpr) inputs.push_back(access.mask);
  return inputs;
}

std::vector<bool> dependences(const Kernel& kernel, const Store& store,
                              const std::vector<std::vector<bool>>& of_exprs) {
  std::vector<bool> axes = dependences(kernel, store.access, of_exprs);
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (of_exprs[store.value][axis]) axes[axis] = true;
  for (Symbol axis : store.over) axes[axis] = true;
  return axes;
}

bool is_decided_by_data(const Access& access) {
  return std::any_of(access.coordinates.begin(), access.coordinates.end(),
                     [](const Coordinate& coordinate) { return coordinate.value != kNoExpr; });
}

std::vector<ExprId> inputs_of(const Expr& expr) {
  std::vector<ExprId> inputs = expr.operands;
  const std::vector<ExprId> of_access = inputs_of(expr.access);
  inputs.insert(inputs.end(), of_access.begin(), of_access.end());
  return inputs;
}

namespace {

void mark_axes(const Kernel& kernel, const Index& index, std::vector<bool>& found) {
  std::vector<bool> used(kernel.symbols.size());
  collect_symbols(index, used);
  for (size_t symbol = 0; symbol < used.size(); ++symbol)
    if (used[symbol] && kernel.symbols[symbol].kind == SymbolKind::kAxis) found[symbol] = true;
}

}  // namespace

std::vector<bool> dependences(const Kernel& kernel, const Access& access,
                              const std::vector<std::vector<bool>>& of_exprs) {
  std::vector<bool> found(kernel.symbols.size());
  for (const Coordinate& coordinate : access.coordinates) mark_axes(kernel, coordinate.index, found);
  for (ExprId input : inputs_of(access))
    for (size_t symbol = 0; symbol < found.size(); ++symbol)
      if (of_exprs[input][symbol]) found[symbol] = true;
  return found;
}

std::vector<std::vector<bool>> dependences(const Kernel& kernel) {
  std::vector<std::vector<bool>> found;
  found.reserve(kernel.exprs.size());
  for (const Expr& expr : kernel.exprs) {
    std::vector<bool> axes = dependences(kernel, expr.access, found);
    for (ExprId operand : expr.operands)
      for (size_t symbol = 0; symbol < axes.size(); ++symbol)
        if (found[operand][symbol]) axes[symbol] = true;
    if (expr.kind == ExprKind::kIndex) mark_axes(kernel, expr.index, axes);
    if (expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kDot)
      for (Symbol axis : expr.axes) axes[axis] = false;
    if (expr.kind == ExprKind::kScan) axes[expr.axes[0]] = true;
    if (expr.kind == ExprKind::kState) axes[kernel.states[expr.state].along] = true;
    found.push_back(std::move(axes));
  }
  return found;
}

namespace {

void moved(ExprId& id, const std::vector<ExprId>& place) {
  if (id != kNoExpr) id = place[id];
}

}  // namespace

namespace {

bool is_same(const Access& left, const Access& right) {
  return left.buffer == right.buffer && left.coordinates == right.coordinates && left.mask == right.mask &&
         same_bits(left.otherwise, right.otherwise);
}

}  // namespace

bool is_same(const Expr& left, const Expr& right) {
  return left.kind == right.kind && left.dtype == right.dtype && left.op == right.op && left.reduce == right.reduce &&
         left.component == right.component && left.reversed == right.reversed && left.precision == right.precision &&
         left.operands == right.operands && left.axes == right.axes && left.state == right.state &&
         left.index == right.index && same_bits(left.number, right.number) && left.integer == right.integer &&
         is_same(left.access, right.access);
}

void renumber(Access& access, const std::vector<ExprId>& place) {
  for (Coordinate& coordinate : access.coordinates) moved(coordinate.value, place);
  moved(access.mask, place);
}

void renumber(Expr& expr, const std::vector<ExprId>& place) {
  for (ExprId& operand : expr.operands) moved(operand, place);
  renumber(expr.access, place);
}

std::vector<ExprId> drop_unused(Kernel& kernel) {
  std::vector<bool> used(kernel.exprs.size());
  const std::function<void(ExprId)> mark = [&](ExprId id) {
    if (id == kNoExpr || used[id]) return;
    used[id] = true;
    for (ExprId input : inputs_of(kernel.exprs[id])) mark(input);
    if (kernel.exprs[id].kind != ExprKind::kState) return;
    mark(kernel.states[kernel.exprs[id].state].initial);
    mark(kernel.states[kernel.exprs[id].state].next);
  };
  for (const Store& store : kernel.stores) {
    mark(store.value);
    for (ExprId input : inputs_of(store.access)) mark(input);
  }
  for (const State& state : kernel.states) {
    mark(state.initial);
    mark(state.next);
  }
  std::vector<ExprId> place(kernel.exprs.size(), kNoExpr);
  std::vector<Expr> kept;
  for (size_t id = 0; id < used.size(); ++id) {
    if (!used[id]) continue;
    place[id] = static_cast<ExprId>(kept.size());
    kept.push_back(std::move(kernel.exprs[id]));
  }
  for (Expr& expr : kept) renumber(expr, place);
  kernel.exprs = std::move(kept);
  for (State& state : kernel.states) {
    moved(state.initial, place);
    moved(state.next, place);
  }
  for (Store& store : kernel.stores) {
    moved(store.value, place);
    renumber(store.access, place);
  }
  return place;
}

}  // namespace kw::kernel
