#include "plan/unrolled_reductions.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "plan/axes.hpp"
#include "plan/kernel_builder.hpp"

namespace kw::plan {

namespace {

using flat::Access;
using flat::Expr;
using flat::ExprKind;
using flat::Guard;
using flat::Kernel;
using flat::Store;

// Per axis of the old kernel: which of the neighbouring points, or which offset.
using Place = std::vector<int64_t>;

class ReductionUnroller {
 public:
  ReductionUnroller(const Kernel& old, const std::vector<int64_t>& repeats)
      : old_(old), repeats_(repeats), varies_(flat::axes_of_exprs(old)), new_(frame(old, repeats)), build_(new_) {
    ranges_ = flat::ranges_of(new_.axes);
  }

  std::optional<Kernel> run() {
    for (const Expr& expr : old_.exprs) {
      const bool folds = expr.kind == ExprKind::kReduce;
      if (expr.kind == ExprKind::kGather || expr.kind == ExprKind::kScan || (folds && !kernel::step_of(expr.reduce)))
        return std::nullopt;
    }
    Place place(old_.axes.size(), 0);
    for (;;) {
      for (const Store& store : old_.stores) write(store, place);
      if (!expressible_) return std::nullopt;
      size_t axis = parallel();
      while (axis > 0 && ++place[axis - 1] == repeats_[axis - 1]) place[--axis] = 0;
      if (axis == 0) break;
    }
    return std::move(new_);
  }

 private:
  static Kernel frame(const Kernel& old, const std::vector<int64_t>& repeats) {
    Kernel kernel = old;
    kernel.exprs.clear();
    kernel.stores.clear();
    kernel.axes.resize(static_cast<size_t>(parallel_axes(old)));
    for (size_t axis = 0; axis < kernel.axes.size(); ++axis)
      kernel.axes[axis].extent = (old.axes[axis].extent + repeats[axis] - 1) / repeats[axis];
    return kernel;
  }

  size_t parallel() const { return new_.axes.size(); }
  bool overhangs(size_t axis) const { return axis < parallel() && old_.axes[axis].extent % repeats_[axis] != 0; }

  Index at(const Index& index, const Place& place) {
    std::vector<Index> replacement;
    for (size_t axis = 0; axis < old_.axes.size(); ++axis) {
      Index one(place[axis]);
      if (axis < parallel()) one = one + axis_index(static_cast<int>(axis), ranges_) * repeats_[axis];
      replacement.push_back(std::move(one));
    }
    std::optional<Index> result = kernel::replace_digits(index, replacement, ranges_);
    expressible_ = expressible_ && result;
    return result.value_or(Index{});
  }

  // Those that the axes do not imply.
  std::vector<Guard> at(const std::vector<Guard>& guards, const Place& place) {
    std::vector<Guard> result;
    for (const Guard& guard : guards) {
      Guard one{at(guard.index, place), guard.lower, guard.upper};
      const Interval range = range_of(one.index, ranges_);
      if (range.low < one.lower || range.high >= one.upper) result.push_back(std::move(one));
    }
    return result;
  }

  void write(const Store& store, const Place& place) {
    const std::vector<bool> axes = flat::axes_of_access(old_, store.access);
    for (size_t axis = 0; axis < parallel(); ++axis)
      if (!axes[axis] && place[axis] > 0) return;
    Store made{store.access, value(store.value, place)};
    made.access.index = at(store.access.index, place);
    made.access.guards = at(store.access.guards, place);
    for (size_t axis = 0; axis < parallel(); ++axis)
      if (overhangs(axis) && axes[axis])
        made.access.guards.push_back(
            {at(kernel::symbol_index(static_cast<int>(axis)), place), 0, old_.axes[axis].extent});
    new_.stores.push_back(std::move(made));
  }

  ExprId value(ExprId id, const Place& place) {
    Place kept = place;
    for (size_t axis = 0; axis < kept.size(); ++axis)
      if (!varies_[id][axis]) kept[axis] = 0;
    const auto found = known_.find({id, kept});
    if (found != known_.end()) return found->second;
    const ExprId made = make(id, kept);
    if (!old_.exprs[id].name.empty()) build_.name(made, old_.exprs[id].name);
    return known_[{id, kept}] = made;
  }

  ExprId make(ExprId id, const Place& place) {
    const Expr& expr = old_.exprs[id];
    if (expr.kind == ExprKind::kReduce) return folded(expr, place, parallel());
    if (expr.kind == ExprKind::kIndex) return build_.index(at(expr.access.index, place), expr.dtype);
    if (expr.kind == ExprKind::kLoad) return load(expr, place);
    Expr copy = expr;
    copy.name.clear();
    for (ExprId& operand : copy.operands) operand = value(operand, place);
    return build_.insert(std::move(copy));
  }

  // Past the last result an element may lie outside of the buffer, where the guards do not say so already.
  ExprId load(const Expr& expr, const Place& place) {
    Access access = expr.access;
    access.index = at(expr.access.index, place);
    access.guards = at(expr.access.guards, place);
    bool may_leave = false;
    for (size_t axis = 0; axis < parallel(); ++axis) {
      if (!overhangs(axis) || !uses_axis(expr.access, static_cast<int>(axis))) continue;
      Access guarded;
      guarded.guards = expr.access.guards;
      may_leave = may_leave || !uses_axis(guarded, static_cast<int>(axis));
    }
    const int64_t elements = new_.buffers[access.buffer].elements;
    if (may_leave && range_of(access.index, ranges_).high >= elements)
      access.guards.push_back({access.index, 0, elements});
    return build_.load(std::move(access), expr.dtype);
  }

  ExprId folded(const Expr& expr, Place place, size_t axis) {
    if (axis == old_.axes.size()) return counted(expr, place);
    ExprId result = flat::kNoExpr;
    for (place[axis] = 0; place[axis] < old_.axes[axis].extent; ++place[axis]) {
      const ExprId one = folded(expr, place, axis + 1);
      result = result == flat::kNoExpr ? one : build_.op(*kernel::step_of(expr.reduce), expr.dtype, {result, one});
    }
    return result;
  }

  // The operand, where the reduction's guards hold: what changes nothing elsewhere.
  ExprId counted(const Expr& expr, const Place& place) {
    const ExprId operand = value(expr.operands[0], place);
    const std::vector<Guard> guards = at(expr.access.guards, place);
    if (guards.empty() || yields_outside(operand, guards, identity_of(expr.reduce))) return operand;
    return build_.select(build_.all_of(guards), operand, identity(expr.reduce, build_.dtype(operand)));
  }

  static double identity_of(ReduceOp reduce) {
    switch (reduce) {
      case ReduceOp::kMax: return -std::numeric_limits<double>::infinity();
      case ReduceOp::kMin: return std::numeric_limits<double>::infinity();
      case ReduceOp::kProd:
      case ReduceOp::kAll: return 1.0;
      default: return 0.0;
    }
  }

  ExprId identity(ReduceOp reduce, DType dtype) {
    const bool extreme = reduce == ReduceOp::kMax || reduce == ReduceOp::kMin;
    if (!extreme || is_floating(dtype)) return build_.constant(identity_of(reduce), dtype);
    expressible_ = expressible_ && (dtype == DType::i32 || dtype == DType::i64);
    const bool wide = dtype == DType::i64, largest = reduce == ReduceOp::kMin;
    if (wide)
      return build_.integer(largest ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min(), dtype);
    return build_.integer(largest ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int32_t>::min(), dtype);
  }

  bool yields_outside(ExprId id, const std::vector<Guard>& guards, double identity) const {
    const Expr& expr = build_.expr(id);
    if (expr.kind == ExprKind::kOp && expr.op == ScalarOp::kCast)
      return yields_outside(expr.operands[0], guards, identity);
    if (expr.kind != ExprKind::kLoad || expr.access.otherwise != identity) return false;
    return std::all_of(guards.begin(), guards.end(), [&](const Guard& guard) {
      return std::find(expr.access.guards.begin(), expr.access.guards.end(), guard) != expr.access.guards.end();
    });
  }

  const Kernel& old_;
  const std::vector<int64_t>& repeats_;
  const std::vector<std::vector<bool>> varies_;
  Kernel new_;
  KernelBuilder build_;
  std::vector<kernel::SymbolRange> ranges_;
  std::map<std::pair<ExprId, Place>, ExprId> known_;
  bool expressible_ = true;
};

}  // namespace

bool unroll_reductions(Kernel& kernel, const std::vector<int64_t>& repeats) {
  std::optional<Kernel> unrolled = ReductionUnroller(kernel, repeats).run();
  if (!unrolled) return false;
  kernel = std::move(*unrolled);
  return true;
}

}  // namespace kw::plan
