#include "kernel/kernel.hpp"

#include <algorithm>

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

}  // namespace kw::kernel
