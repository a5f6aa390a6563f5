#include "plan/group_kernel.hpp"

#include <algorithm>
#include <limits>

namespace kw::plan {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();

// index >= number or index < number.
bool is_bound(const kernel::Kernel& kernel, const Expr& expr) {
  if (expr.kind != ExprKind::kOp || (expr.op != ScalarOp::kGreaterEqual && expr.op != ScalarOp::kLess)) return false;
  const Expr &left = kernel.exprs[expr.operands[0]], &right = kernel.exprs[expr.operands[1]];
  return (left.kind == ExprKind::kIndex || left.kind == ExprKind::kConstant) && right.kind == ExprKind::kConstant &&
         !is_floating(right.dtype);
}

bool are_guards(const kernel::Kernel& kernel, ExprId mask) {
  const Expr& expr = kernel.exprs[mask];
  if (expr.kind != ExprKind::kOp || expr.op != ScalarOp::kLogicalAnd) return is_bound(kernel, expr);
  return are_guards(kernel, expr.operands[0]) && are_guards(kernel, expr.operands[1]);
}

void collect_guards(const kernel::Kernel& kernel, ExprId mask, std::vector<Guard>& guards) {
  const Expr& expr = kernel.exprs[mask];
  if (is_bound(kernel, expr)) {
    const int64_t bound = kernel.exprs[expr.operands[1]].integer;
    const bool is_lower = expr.op == ScalarOp::kGreaterEqual;
    const Expr& place = kernel.exprs[expr.operands[0]];
    const Index index = place.kind == ExprKind::kIndex ? place.index : Index(place.integer);
    guards.push_back({index, is_lower ? bound : kLowest, is_lower ? kHighest : bound});
  } else if (expr.kind == ExprKind::kOp && expr.op == ScalarOp::kLogicalAnd) {
    for (ExprId operand : expr.operands) collect_guards(kernel, operand, guards);
  }
}

void add_access(const kernel::Kernel& kernel, const Access& access, std::vector<ExprId>& parts) {
  for (const kernel::Coordinate& coordinate : access.coordinates)
    if (coordinate.value != kNoExpr) parts.push_back(coordinate.value);
  if (const ExprId condition = parts_of_mask(kernel, access.mask).condition; condition != kNoExpr)
    parts.push_back(condition);
}

}  // namespace

kernel::SymbolInfo axis_of(std::string name, int64_t extent) {
  return {std::move(name), kernel::SymbolKind::kAxis, {0, std::max<int64_t>(extent - 1, 0), 1}, extent, false};
}

int64_t extent_of(const kernel::SymbolInfo& axis) { return kernel::as_constant(axis.extent).value(); }
int64_t extent_of(const GroupKernel& kernel, int axis) { return extent_of(kernel.symbols[axis]); }

int scan_axis_of(const GroupKernel& kernel) {
  for (const Expr& expr : kernel.exprs)
    if (expr.kind == ExprKind::kScan) return expr.axes[0];
  return -1;
}

bool is_folded(const GroupKernel& kernel, int axis) { return is_serial(kernel, axis) && axis != scan_axis_of(kernel); }

kernel::Buffer row_of_elements(std::string name, DType dtype, int64_t elements, kernel::BufferRole role) {
  return {.name = std::move(name), .dtype = dtype, .shape = {elements}, .strides = {}, .role = role};
}

int64_t elements_of(const kernel::Buffer& buffer) { return kernel::as_constant(buffer.shape.at(0)).value(); }

Access element_at(int buffer, Index index) {
  Access access;
  access.buffer = buffer;
  access.coordinates.push_back({std::move(index), kNoExpr});
  return access;
}

bool scatters(const GroupKernel& kernel) { return std::any_of(kernel.stores.begin(), kernel.stores.end(), is_scatter); }

bool sorts(const GroupKernel& kernel) {
  return std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) { return is_sort(expr); });
}

MaskParts parts_of_mask(const kernel::Kernel& kernel, ExprId mask) {
  if (mask == kNoExpr) return {};
  if (are_guards(kernel, mask)) return {.guards = mask, .condition = kNoExpr};
  const Expr& expr = kernel.exprs[mask];
  const bool both = expr.kind == ExprKind::kOp && expr.op == ScalarOp::kLogicalAnd;
  if (both && are_guards(kernel, expr.operands[0])) return {.guards = expr.operands[0], .condition = expr.operands[1]};
  return {.guards = kNoExpr, .condition = mask};
}

std::vector<Guard> guards_of(const kernel::Kernel& kernel, ExprId mask) {
  std::vector<Guard> guards;
  if (const ExprId part = parts_of_mask(kernel, mask).guards; part != kNoExpr) collect_guards(kernel, part, guards);
  return guards;
}

std::vector<bool> axes_of_access(const kernel::Kernel& kernel, const Access& access) {
  std::vector<bool> axes(kernel.symbols.size());
  for (const kernel::Coordinate& coordinate : access.coordinates) kernel::collect_symbols(coordinate.index, axes);
  for (const Guard& guard : guards_of(kernel, access.mask)) kernel::collect_symbols(guard.index, axes);
  return axes;
}

bool uses_axis(const kernel::Kernel& kernel, const Access& access, int axis) {
  return axes_of_access(kernel, access)[axis];
}

std::vector<ExprId> made_of(const kernel::Kernel& kernel, const Expr& expr) {
  std::vector<ExprId> parts = expr.operands;
  add_access(kernel, expr.access, parts);
  return parts;
}

std::vector<ExprId> made_of(const kernel::Kernel& kernel, const Store& store) {
  std::vector<ExprId> parts;
  add_access(kernel, store.access, parts);
  parts.push_back(store.value);
  return parts;
}

std::vector<bool> values_of(const kernel::Kernel& kernel) {
  std::vector<bool> values(kernel.exprs.size());
  for (const Store& store : kernel.stores)
    for (ExprId part : made_of(kernel, store)) values[part] = true;
  for (size_t id = values.size(); id-- > 0;)
    if (values[id])
      for (ExprId part : made_of(kernel, kernel.exprs[id])) values[part] = true;
  return values;
}

int64_t stride_along(const Access& access, int axis) { return kernel::stride_along(index_of(access), axis); }

std::vector<ExprId> siblings_of(const kernel::Kernel& kernel, ExprId id) {
  std::vector<ExprId> siblings;
  const Expr& one = kernel.exprs[id];
  for (size_t other = 0; other < kernel.exprs.size(); ++other) {
    const Expr& expr = kernel.exprs[other];
    const bool folds = expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kScan;
    // A Scan's positions have a dtype of their own.
    const bool same_dtype = expr.kind == ExprKind::kScan || expr.dtype == one.dtype;
    if (folds && expr.kind == one.kind && expr.reduce == one.reduce && expr.operands == one.operands && same_dtype &&
        expr.integer == one.integer && expr.access.mask == one.access.mask)
      siblings.push_back(static_cast<ExprId>(other));
  }
  return siblings;
}

}  // namespace kw::plan
