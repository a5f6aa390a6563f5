#include "emit/cpu/placement.hpp"

#include <algorithm>

#include "emit/cpu/reductions.hpp"
#include "emit/loop_stops.hpp"

namespace kw::cpu {

using namespace kw::kernel_ir;

int depth_of(const std::vector<bool>& axes, const std::vector<int>& loops) {
  for (int depth = static_cast<int>(loops.size()); depth > 0; --depth)
    if (axes[loops[depth - 1]]) return depth;
  return 0;
}

int depth_of(const Guard& guard, const std::vector<int>& loops) {
  for (int depth = static_cast<int>(loops.size()); depth > 0; --depth)
    if (std::any_of(guard.index.terms.begin(), guard.index.terms.end(),
                    [&](const IndexTerm& term) { return term.axis == loops[depth - 1]; }))
      return depth;
  return 0;
}

std::vector<bool> axes_of(const Kernel& kernel, const LoopNest& nest, const Store& store) {
  std::vector<bool> axes = axes_of_access(kernel, store.access);
  if (scatter_of(kernel, store) != nullptr)
    axes.assign(axes.size(), true);  // once for each point, also where all are the same
  for (size_t axis = 0; axis < axes.size(); ++axis) axes[axis] = axes[axis] || nest.axes[store.value][axis];
  return axes;
}

std::vector<ExprId> roots_of(const Kernel& kernel, const Sink& sink) {
  if (sink.kind == Sink::kStore) return {kernel.stores[sink.id].value};
  if (sink.kind == Sink::kFold) return kernel.exprs[sink.id].operands;
  return {sink.id};
}

bool reads(const Kernel& kernel, const Sink& sink, ExprId id) {
  const std::vector<ExprId> roots = roots_of(kernel, sink);
  return std::find(roots.begin(), roots.end(), id) != roots.end();
}

int depth_of(const Kernel& kernel, const LoopNest& nest, const Sink& sink, const std::vector<int>& loops) {
  if (sink.kind == Sink::kFold) return static_cast<int>(loops.size());
  if (sink.kind == Sink::kStore) return depth_of(axes_of(kernel, nest, kernel.stores[sink.id]), loops);
  return depth_of(nest.axes[sink.id], loops);
}

bool is_read_over_reduce_axes(const Kernel& kernel, const LoopNest& nest, const std::vector<bool>& reached, ExprId id) {
  for (size_t user = id + 1; user < reached.size(); ++user) {
    const auto& operands = kernel.exprs[user].operands;
    const bool over = std::any_of(nest.reduce_axes.begin(), nest.reduce_axes.end(),
                                  [&](int axis) { return nest.axes[user][axis]; });
    if (reached[user] && over && std::find(operands.begin(), operands.end(), id) != operands.end()) return true;
  }
  return false;
}

std::vector<bool> reached_from(const Kernel& kernel, const std::vector<Sink>& sinks, const IsAvailable& is_available) {
  std::vector<bool> reached(kernel.exprs.size(), false);
  for (const Sink& sink : sinks)
    for (ExprId root : roots_of(kernel, sink)) reached[root] = reached[root] || !is_available(root);
  for (size_t id = reached.size(); id-- > 0;)
    if (reached[id])
      for (ExprId operand : kernel.exprs[id].operands)
        if (!is_available(operand)) reached[operand] = true;
  return reached;
}

Placement place(const Kernel& kernel, const LoopNest& nest, const std::vector<int>& loops,
                const std::vector<Sink>& sinks, const IsAvailable& is_available) {
  const size_t count = kernel.exprs.size();
  Placement placement{std::vector<int>(count, 0), std::vector<int>(count, 0), std::vector<int>(count, 0),
                      reached_from(kernel, sinks, is_available)};
  for (size_t id = 0; id < count; ++id) placement.depth[id] = depth_of(nest.axes[id], loops);
  for (const Sink& sink : sinks) {
    const bool twice = sink.kind == Sink::kFold && reads_operand_twice(kernel.exprs[sink.id]);
    for (ExprId root : roots_of(kernel, sink)) {
      placement.uses[root] += twice ? 2 : 1;
      placement.deepest_user[root] = std::max(placement.deepest_user[root], depth_of(kernel, nest, sink, loops));
    }
  }
  for (size_t id = count; id-- > 0;) {
    if (!placement.reached[id]) continue;
    for (ExprId operand : kernel.exprs[id].operands) {
      ++placement.uses[operand];
      placement.deepest_user[operand] = std::max(placement.deepest_user[operand], placement.depth[id]);
    }
  }
  return placement;
}

std::vector<Guard> common_guards(const Kernel& kernel, const std::vector<Sink>& sinks) {
  std::vector<Guard> common;
  for (size_t i = 0; i < sinks.size(); ++i) {
    if (sinks[i].kind != Sink::kFold) return {};
    const std::vector<Guard>& own = kernel.exprs[sinks[i].id].access.guards;
    if (i == 0) common = own;
    std::erase_if(common, [&](const Guard& guard) { return std::find(own.begin(), own.end(), guard) == own.end(); });
  }
  return common;
}

bool is_only_stored(const Kernel& kernel, const LoopNest& nest, ExprId id) {
  for (const Expr& expr : kernel.exprs)
    if (std::find(expr.operands.begin(), expr.operands.end(), id) != expr.operands.end()) return false;
  const Store* only = nullptr;
  for (const Store& store : kernel.stores) {
    if (store.value != id) continue;
    if (only) return false;
    only = &store;
  }
  if (!only) return false;
  const std::vector<bool> axes = axes_of(kernel, nest, *only);
  return std::none_of(nest.reduce_axes.begin(), nest.reduce_axes.end(), [&](int axis) { return axes[axis]; });
}

ExprId stop_of(const Kernel& kernel, const std::vector<Sink>& sinks, int axis) {
  std::vector<ExprId> folds;
  for (const Sink& sink : sinks) {
    if (sink.kind != Sink::kFold) return kNoExpr;
    folds.push_back(sink.id);
  }
  return kernel_ir::stop_of(kernel, axis, folds);
}

Bounds range_within(const Kernel& kernel, const Guard& guard, int axis, const AxisNames& names) {
  Index rest = guard.index;
  const auto is_own = [&](const IndexTerm& term) { return term.axis == axis; };
  const auto own = std::find_if(rest.terms.begin(), rest.terms.end(), is_own);
  if (own == rest.terms.end()) return {};
  const IndexTerm step = *own;
  rest.terms.erase(own);
  if (step.divisor != 1 || step.modulus != 0 || step.coefficient < 1 ||
      std::any_of(rest.terms.begin(), rest.terms.end(), is_own))
    return {};
  // The first place where step · place + rest ≥ bound. Rounding towards zero is right where it matters, since no place
  // is negative.
  const auto first_from = [&](int64_t bound) {
    Index distance{bound - rest.constant + step.coefficient - 1, rest.terms};
    for (IndexTerm& term : distance.terms) term.coefficient = -term.coefficient;
    const Text text = index_text(kernel, distance, names, &guard.index);
    return step.coefficient == 1 ? text.text
                                 : within(text, precedence::kMultiply) + " / " + std::to_string(step.coefficient);
  };
  return {first_from(guard.lower), first_from(guard.upper)};
}

std::vector<Sink> column_values(const Kernel& kernel, const LoopNest& nest, const std::vector<Sink>& sinks,
                                const std::vector<bool>& reached) {
  std::vector<Sink> values;
  for (size_t at = 0; at < reached.size(); ++at) {
    const auto id = static_cast<ExprId>(at);
    const auto along = [&](int axis) { return nest.axes[at][axis]; };
    const bool differs = nest.vector_axis >= 0 && along(nest.vector_axis) &&
                         std::none_of(nest.reduce_axes.begin(), nest.reduce_axes.end(), along);
    if (!reached[at] || !differs || kernel.exprs[at].kind != ExprKind::kOp) continue;
    const auto reads_it = [&](const Sink& sink) { return reads(kernel, sink, id); };
    if (std::any_of(sinks.begin(), sinks.end(), reads_it) || is_read_over_reduce_axes(kernel, nest, reached, id))
      values.push_back({Sink::kColumnValue, static_cast<int>(id)});
  }
  return values;
}

bool may_refuse(const Kernel& kernel, const std::vector<bool>& reached) {
  for (size_t id = 0; id < kernel.exprs.size(); ++id)
    if (reached[id] && kernel.exprs[id].kind == ExprKind::kOp && kernel.exprs[id].op == ScalarOp::kBounded) return true;
  return false;
}

}  // namespace kw::cpu
