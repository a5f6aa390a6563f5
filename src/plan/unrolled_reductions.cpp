#include "plan/unrolled_reductions.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "plan/axes.hpp"
#include "plan/group_builder.hpp"

namespace kw::plan {

namespace {

// Per axis of the old kernel: which of the neighbouring points, or which offset.
using Place = std::vector<int64_t>;

class ReductionUnroller {
 public:
  ReductionUnroller(const GroupKernel& old, const std::vector<int64_t>& repeats)
      : old_(old), repeats_(repeats), varies_(kernel::dependences(old)), new_(frame(old, repeats)), build_(new_) {
    ranges_ = kernel::ranges_of(new_);
  }

  std::optional<GroupKernel> run() {
    for (const Expr& expr : old_.exprs) {
      const bool folds = expr.kind == ExprKind::kReduce;
      if (looks_up(expr) || expr.kind == ExprKind::kScan || (folds && !kernel::step_of(expr.reduce)))
        return std::nullopt;
    }
    Place place(old_.symbols.size(), 0);
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
  static GroupKernel frame(const GroupKernel& old, const std::vector<int64_t>& repeats) {
    GroupKernel kernel = old;
    kernel.exprs.clear();
    kernel.stores.clear();
    kernel.symbols.resize(static_cast<size_t>(old.parallel));
    for (int axis = 0; axis < old.parallel; ++axis)
      kernel.symbols[axis] = axis_of(old.symbols[axis].name,
                                     (extent_of(old, axis) + repeats[axis] - 1) / repeats[axis]);
    return kernel;
  }

  size_t parallel() const { return new_.symbols.size(); }
  bool overhangs(size_t axis) const { return axis < parallel() && extent_of(old_.symbols[axis]) % repeats_[axis] != 0; }

  Index at(const Index& index, const Place& place) {
    std::vector<Index> replacement;
    for (size_t axis = 0; axis < old_.symbols.size(); ++axis) {
      Index one(place[axis]);
      if (axis < parallel()) one = one + axis_index(static_cast<int>(axis), ranges_) * repeats_[axis];
      replacement.push_back(std::move(one));
    }
    std::optional<Index> result = kernel::replace_digits(index, replacement, ranges_);
    expressible_ = expressible_ && result;
    return result.value_or(Index{});
  }

  // Those that the axes do not imply.
  std::vector<Guard> guards_at(ExprId mask, const Place& place) {
    std::vector<Guard> result;
    for (const Guard& guard : guards_of(old_, mask)) {
      Guard one{at(guard.index, place), guard.lower, guard.upper};
      const Interval range = range_of(one.index, ranges_);
      if (range.low < one.lower || range.high >= one.upper) result.push_back(std::move(one));
    }
    return result;
  }

  void write(const Store& store, const Place& place) {
    const std::vector<bool> axes = axes_of_access(old_, store.access);
    for (size_t axis = 0; axis < parallel(); ++axis)
      if (!axes[axis] && place[axis] > 0) return;
    Store made = store;
    made.value = value(store.value, place);
    index_of(made.access) = at(index_of(store.access), place);
    std::vector<Guard> guards = guards_at(store.access.mask, place);
    for (size_t axis = 0; axis < parallel(); ++axis)
      if (overhangs(axis) && axes[axis])
        guards.push_back({at(kernel::symbol_index(static_cast<int>(axis)), place), 0, extent_of(old_.symbols[axis])});
    made.access.mask = build_.mask_of(guards);
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
    if (expr.kind == ExprKind::kIndex) return build_.index(at(expr.index, place), expr.dtype);
    if (is_load(expr)) return load(expr, place);
    Expr copy = expr;
    copy.name.clear();
    for (ExprId& operand : copy.operands) operand = value(operand, place);
    return build_.insert(std::move(copy));
  }

  // Past the last result an element may lie outside of the buffer, where the guards do not say so already.
  ExprId load(const Expr& expr, const Place& place) {
    Access access = expr.access;
    index_of(access) = at(index_of(expr.access), place);
    std::vector<Guard> guards = guards_at(expr.access.mask, place);
    Access guarded;
    guarded.mask = expr.access.mask;
    bool may_leave = false;
    for (int axis = 0; axis < old_.parallel; ++axis)
      may_leave = may_leave || (overhangs(static_cast<size_t>(axis)) && uses_axis(old_, expr.access, axis) &&
                                !uses_axis(old_, guarded, axis));
    const int64_t elements = elements_of(new_.buffers[access.buffer]);
    if (may_leave && range_of(index_of(access), ranges_).high >= elements)
      guards.push_back({index_of(access), 0, elements});
    return build_.load(std::move(access), guards);
  }

  ExprId folded(const Expr& expr, Place place, size_t axis) {
    if (axis == old_.symbols.size()) return counted(expr, place);
    ExprId result = kNoExpr;
    for (place[axis] = 0; place[axis] < extent_of(old_.symbols[axis]); ++place[axis]) {
      const ExprId one = folded(expr, place, axis + 1);
      result = result == kNoExpr ? one : build_.op(*kernel::step_of(expr.reduce), {result, one});
    }
    return result;
  }

  // The operand, where the reduction's guards hold: what changes nothing elsewhere.
  ExprId counted(const Expr& expr, const Place& place) {
    const ExprId operand = value(expr.operands[0], place);
    const std::vector<Guard> guards = guards_at(expr.access.mask, place);
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
    if (!extreme || is_floating(dtype)) return build_.constant(dtype, identity_of(reduce));
    expressible_ = expressible_ && (dtype == DType::i32 || dtype == DType::i64);
    const bool wide = dtype == DType::i64, largest = reduce == ReduceOp::kMin;
    if (wide)
      return build_.constant(dtype,
                             largest ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min());
    return build_.constant(dtype, largest ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int32_t>::min());
  }

  bool yields_outside(ExprId id, const std::vector<Guard>& guards, double identity) const {
    const Expr& expr = build_.expr(id);
    if (expr.kind == ExprKind::kOp && expr.op == ScalarOp::kCast)
      return yields_outside(expr.operands[0], guards, identity);
    if (!is_load(expr) || expr.access.otherwise != identity) return false;
    const std::vector<Guard> of_load = guards_of(new_, expr.access.mask);
    return std::all_of(guards.begin(), guards.end(), [&](const Guard& guard) {
      return std::find(of_load.begin(), of_load.end(), guard) != of_load.end();
    });
  }

  const GroupKernel& old_;
  const std::vector<int64_t>& repeats_;
  const std::vector<std::vector<bool>> varies_;
  GroupKernel new_;
  GroupBuilder build_;
  std::vector<kernel::SymbolRange> ranges_;
  std::map<std::pair<ExprId, Place>, ExprId> known_;
  bool expressible_ = true;
};

}  // namespace

bool unroll_reductions(GroupKernel& kernel, const std::vector<int64_t>& repeats) {
  std::optional<GroupKernel> unrolled = ReductionUnroller(kernel, repeats).run();
  if (!unrolled) return false;
  kernel = std::move(*unrolled);
  return true;
}

}  // namespace kw::plan
