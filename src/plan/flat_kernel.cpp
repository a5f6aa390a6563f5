#include "plan/flat_kernel.hpp"

#include <algorithm>

namespace kw::plan::flat {

std::vector<bool> axes_of_access(const Kernel& kernel, const Access& access) {
  std::vector<bool> axes(kernel.axes.size(), false);
  kernel::collect_symbols(access.index, axes);
  for (const Guard& guard : access.guards) kernel::collect_symbols(guard.index, axes);
  return axes;
}

int64_t stride_along(const Access& access, int axis) { return kernel::stride_along(access.index, axis); }

std::vector<std::vector<bool>> axes_of_exprs(const Kernel& kernel) {
  std::vector<std::vector<bool>> result;
  result.reserve(kernel.exprs.size());
  for (const Expr& expr : kernel.exprs) {
    std::vector<bool> axes(kernel.axes.size(), false);
    if (expr.kind != ExprKind::kConstant && expr.kind != ExprKind::kOp) axes = axes_of_access(kernel, expr.access);
    for (ExprId operand : expr.operands)
      for (size_t axis = 0; axis < axes.size(); ++axis) axes[axis] = axes[axis] || result[operand][axis];
    if (expr.kind == ExprKind::kReduce)
      for (size_t axis = 0; axis < axes.size(); ++axis)
        if (kernel.axes[axis].kind == AxisKind::kReduce) axes[axis] = false;
    if (expr.kind == ExprKind::kScan)
      for (size_t axis = 0; axis < axes.size(); ++axis)
        axes[axis] = axes[axis] || kernel.axes[axis].kind == AxisKind::kScan;
    result.push_back(std::move(axes));
  }
  return result;
}

std::vector<ExprId> siblings_of(const Kernel& kernel, ExprId id) {
  std::vector<ExprId> siblings;
  const Expr& one = kernel.exprs[id];
  for (size_t other = 0; other < kernel.exprs.size(); ++other) {
    const Expr& expr = kernel.exprs[other];
    const bool folds = expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kScan;
    // A Scan's positions have a dtype of their own.
    const bool same_dtype = expr.kind == ExprKind::kScan || expr.dtype == one.dtype;
    if (folds && expr.kind == one.kind && expr.reduce == one.reduce && expr.operands == one.operands && same_dtype &&
        expr.integer == one.integer && expr.access.guards == one.access.guards)
      siblings.push_back(static_cast<ExprId>(other));
  }
  return siblings;
}

bool sorts(const Kernel& kernel) { return std::any_of(kernel.exprs.begin(), kernel.exprs.end(), is_sort); }

bool scatters(const Kernel& kernel) {
  return std::any_of(kernel.stores.begin(), kernel.stores.end(),
                     [&](const Store& store) { return scatter_of(kernel, store) != nullptr; });
}

std::vector<kernel::SymbolRange> ranges_of(const std::vector<Axis>& axes) {
  std::vector<kernel::SymbolRange> ranges;
  ranges.reserve(axes.size());
  for (const Axis& axis : axes) ranges.push_back({0, std::max<int64_t>(axis.extent - 1, 0), 1});
  return ranges;
}

int scan_axis_of(const Kernel& kernel) {
  for (size_t axis = 0; axis < kernel.axes.size(); ++axis)
    if (kernel.axes[axis].kind == AxisKind::kScan) return static_cast<int>(axis);
  return -1;
}

}  // namespace kw::plan::flat
