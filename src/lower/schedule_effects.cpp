#include "lower/schedule_effects.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace kw::lower {
namespace {

using kernel::Expr;
using kernel::ExprKind;
using kernel::ReduceOp;

bool folds(const Expr& expr, kernel::Symbol axis) {
  const bool folded = expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kDot;
  return folded && std::find(expr.axes.begin(), expr.axes.end(), axis) != expr.axes.end();
}

class Effects {
 public:
  explicit Effects(const kernel::Kernel& kernel) : kernel_(kernel) {}

  template <typename Holds>
  bool any(const Holds& holds) const {
    return std::any_of(kernel_.exprs.begin(), kernel_.exprs.end(), holds);
  }

  bool is_exact_product(const Expr& expr) const {
    return expr.kind == ExprKind::kDot && expr.precision == kernel::Precision::kFull &&
           kernel_.exprs[expr.operands[0]].dtype == DType::f32;
  }

  // A fold that needs the maximum along the same axis; of several results, one that is such a pair by itself.
  bool has_online_fold(kernel::Symbol axis) const {
    std::vector<bool> needs_maximum(kernel_.exprs.size());
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      // What a state was made of comes behind it.
      needs_maximum[id] = expr.kind == ExprKind::kState;
      for (const kernel::ExprId input : inputs_of(expr))
        if (needs_maximum[input]) needs_maximum[id] = true;
      if (!folds(expr, axis)) continue;
      const bool pair = expr.reduce == ReduceOp::kMaxSumExp || expr.reduce == ReduceOp::kCombineMaxSumExp;
      if (needs_maximum[id] || (expr.kind == ExprKind::kReduce && pair)) return true;
      if (expr.kind == ExprKind::kReduce && expr.reduce == ReduceOp::kMax) needs_maximum[id] = true;
    }
    return false;
  }

  bool has_fold(kernel::Symbol axis) const {
    return any([&](const Expr& expr) { return folds(expr, axis); });
  }

  bool has_scan(kernel::Symbol axis) const {
    return any([&](const Expr& expr) { return expr.kind == ExprKind::kScan && expr.axes[0] == axis; });
  }

  bool has_scan_of_products(kernel::Symbol axis) const {
    return any([&](const Expr& expr) {
      return expr.kind == ExprKind::kScan && expr.axes[0] == axis && expr.reduce == ReduceOp::kProd;
    });
  }

  bool has_scatter() const {
    return std::any_of(kernel_.stores.begin(), kernel_.stores.end(),
                       [](const kernel::Store& store) { return kernel::is_decided_by_data(store.access); });
  }

 private:
  const kernel::Kernel& kernel_;
};

}  // namespace

std::string idle_word(const KernelSchedule& schedule, const kernel::Kernel& kernel) {
  const Effects effects(kernel);
  if (schedule.scheme == Scheme::kFp16x3 &&
      !effects.any([&](const Expr& one) { return effects.is_exact_product(one); }))
    return "scheme is \"fp16x3\", but the kernel has no product of f32 that must be as exact as f32";
  if (schedule.in_order && !effects.has_scatter()) return "in_order is set, but data decide the place of no store";
  const std::vector<kernel::Symbol> axes = kernel::axes_of(kernel);
  for (size_t place = 0; place < axes.size(); ++place) {
    const AxisSchedule& axis = schedule.axes[place];
    const std::string& name = kernel.symbols[axes[place]].name;
    if (axis.online && !effects.has_online_fold(axes[place]))
      return fmt::format("axis '{}' is online, but no fold along it needs a maximum along it", name);
    if (axis.stops && !effects.has_fold(axes[place]))
      return fmt::format("data stop the loop of axis '{}', but nothing is folded along it", name);
    if (axis.network && !effects.has_scan_of_products(axes[place]))
      return fmt::format("axis '{}' has a network, but no scan multiplies along it", name);
    if (axis.in_order && !effects.has_scan(axes[place]))
      return fmt::format("axis '{}' is walked in order, but nothing is scanned along it", name);
  }
  return "";
}

}  // namespace kw::lower
