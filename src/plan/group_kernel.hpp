// The kernel of a group of nodes before it has a schedule: a Kernel whose buffers are elements in a row, whose indices
// are made of digits (kernel/digits.hpp), and whose masks say between which bounds indices lie. Schedulers rewrite its
// axes (axes.hpp) and embed it in the kernel that they schedule (embedding.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel/digits.hpp"
#include "kernel/kernel.hpp"

namespace kw::plan {

using kernel::Access;
using kernel::Expr;
using kernel::ExprId;
using kernel::ExprKind;
using kernel::Index;
using kernel::kNoExpr;
using kernel::ReduceOp;
using kernel::ScalarOp;
using kernel::Store;

struct GroupKernel : kernel::Kernel {
  // Axes that programs or threads share out: the first ones. Those behind them are folded, all by every Reduce, and may
  // be stored over, too (softmax writes every column), or they are one that is scanned. A CPU walks the last ones in
  // order where stores may meet there.
  int parallel = 0;
};
// A Reduce has a mask, too, where it folds a part of its row (kernel::Expr::access).

kernel::SymbolInfo axis_of(std::string name, int64_t extent);
int64_t extent_of(const kernel::SymbolInfo& axis);
int64_t extent_of(const GroupKernel& kernel, int axis);
inline int axis_count(const GroupKernel& kernel) { return static_cast<int>(kernel.symbols.size()); }
// Is the axis folded or walked by a program rather than shared out among them?
inline bool is_serial(const GroupKernel& kernel, int axis) { return axis >= kernel.parallel; }
int scan_axis_of(const GroupKernel& kernel);  // −1 where nothing is scanned
bool is_folded(const GroupKernel& kernel, int axis);

kernel::Buffer row_of_elements(std::string name, DType dtype, int64_t elements, kernel::BufferRole role);
int64_t elements_of(const kernel::Buffer& buffer);

Access element_at(int buffer, Index index);
inline const Index& index_of(const Access& access) { return access.coordinates.at(0).index; }
inline Index& index_of(Access& access) { return access.coordinates.at(0).index; }
// The expression that moves the access as the data decide; kNoExpr where nothing does.
inline ExprId lookup_of(const Access& access) { return access.coordinates.at(0).value; }

inline bool is_load(const Expr& expr) { return expr.kind == ExprKind::kLoad; }
inline bool looks_up(const Expr& expr) { return is_load(expr) && lookup_of(expr.access) != kNoExpr; }
// Where the data decide the place of a store, points may meet in one element.
inline bool is_scatter(const Store& store) { return lookup_of(store.access) != kNoExpr; }
bool scatters(const GroupKernel& kernel);
inline bool is_sort(const Expr& expr) {
  return (expr.kind == ExprKind::kScan || expr.kind == ExprKind::kReduce) && kernel::is_sort(expr.reduce);
}
bool sorts(const GroupKernel& kernel);

// --- Guards: conditions lower <= index < upper (padding, cat, slices), as masks say them ---

struct Guard {
  Index index;
  int64_t lower = 0, upper = 0;
  bool operator==(const Guard&) const = default;
};

// A mask is guards, a condition of another kind, or the first and then the second.
struct MaskParts {
  ExprId guards = kNoExpr, condition = kNoExpr;
};
MaskParts parts_of_mask(const kernel::Kernel& kernel, ExprId mask);
// Each of the mask's bounds, as a guard of its own.
std::vector<Guard> guards_of(const kernel::Kernel& kernel, ExprId mask);
// Do index and guards depend on the axis? What the data decide does not count.
bool uses_axis(const kernel::Kernel& kernel, const Access& access, int axis);
std::vector<bool> axes_of_access(const kernel::Kernel& kernel, const Access& access);  // [axis]

// The expressions of which an expression, or a store, is made: operands, what moves its access, its mask's condition.
std::vector<ExprId> made_of(const kernel::Kernel& kernel, const Expr& expr);
std::vector<ExprId> made_of(const kernel::Kernel& kernel, const Store& store);
// [expr] Is it stored, or is something stored made of it? Guards are not.
std::vector<bool> values_of(const kernel::Kernel& kernel);

int64_t stride_along(const Access& access, int axis);

// Of accesses, and of what the axes are otherwise asked for, by guards among others.
template <typename Kernel, typename Visit>
void for_each_index(Kernel& kernel, Visit&& visit) {
  const auto visit_access = [&](auto& access) {
    for (auto& coordinate : access.coordinates) visit(coordinate.index);
  };
  for (auto& expr : kernel.exprs) {
    visit(expr.index);
    visit_access(expr.access);
  }
  for (auto& store : kernel.stores) visit_access(store.access);
}

// The Reduce or Scan expressions that fold the same operands with the same operation: the components of one, `id` among
// them, ascending.
std::vector<ExprId> siblings_of(const kernel::Kernel& kernel, ExprId id);

}  // namespace kw::plan
