#include "plan/axes.hpp"

#include <algorithm>
#include <numeric>

#include "support/error.hpp"

namespace kw::plan {

using flat::Access;
using flat::Axis;
using flat::AxisKind;
using flat::Expr;
using flat::ExprKind;
using flat::Kernel;

namespace {

template <typename Visit>
void for_each_access(Kernel& kernel, Visit&& visit) {
  for (Expr& expr : kernel.exprs)
    if (expr.kind != ExprKind::kConstant && expr.kind != ExprKind::kOp) visit(expr.access);
  for (auto& store : kernel.stores) visit(store.access);
}

// A position along the reduce axes is asked for, or points that meet there must do so in order.
bool has_positions(const Kernel& kernel) {
  return flat::scatters(kernel) || std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) {
           return expr.kind == ExprKind::kReduce &&
                  (expr.reduce == flat::ReduceOp::kArgMax || expr.reduce == flat::ReduceOp::kArgMin);
         });
}

// Replacement that makes axes[first..last] one axis; the others keep their order.
struct Fused {
  std::vector<Axis> axes;
  std::vector<Index> replacement;
};

Fused fuse_range(const Kernel& kernel, int first, int last) {
  Fused fused;
  std::vector<int> places;
  int64_t inner = 1;
  for (int axis = first; axis <= last; ++axis) inner *= kernel.axes[axis].extent;
  for (int axis = 0; axis < static_cast<int>(kernel.axes.size()); ++axis) {
    if (axis <= first || axis > last) fused.axes.push_back(kernel.axes[axis]);
    const int place = static_cast<int>(fused.axes.size()) - 1;
    if (axis > first && axis <= last) fused.axes[place].extent *= kernel.axes[axis].extent;
    places.push_back(place);
  }
  const std::vector<kernel::SymbolRange> ranges = flat::ranges_of(fused.axes);
  for (int axis = 0; axis < static_cast<int>(kernel.axes.size()); ++axis) {
    Index place = axis_index(places[axis], ranges);
    if (axis >= first && axis <= last) {
      const int64_t extent = kernel.axes[axis].extent;
      inner /= extent;
      place = kernel::modulo(kernel::floor_divide(place, inner, ranges), extent, ranges);
    }
    fused.replacement.push_back(std::move(place));
  }
  return fused;
}

bool walks_plainly(const Index& index, int axis) {
  const std::vector<kernel::Digit> digits = kernel::digits_of(index);
  return std::all_of(digits.begin(), digits.end(),
                     [&](const kernel::Digit& digit) { return digit.axis != axis || digit.is_plain(); });
}

bool merge_if_free(Kernel& kernel, int outer) {
  Fused fused = fuse_range(kernel, outer, outer + 1);
  Kernel trial = kernel;
  if (!replace_axes(trial, std::move(fused.axes), fused.replacement)) return false;
  bool plain = true;
  for_each_access(trial, [&](const Access& access) {
    plain = plain && walks_plainly(access.index, outer);
    for (const auto& guard : access.guards) plain = plain && walks_plainly(guard.index, outer);
  });
  if (!plain) return false;
  kernel = std::move(trial);
  return true;
}

}  // namespace

bool replace_axes(Kernel& kernel, std::vector<Axis> axes, const std::vector<Index>& replacement) {
  Kernel changed = kernel;
  changed.axes = std::move(axes);
  const std::vector<kernel::SymbolRange> ranges = flat::ranges_of(changed.axes);
  bool good = true;
  auto rewrite = [&](Index& index) {
    auto result = good ? kernel::replace_digits(index, replacement, ranges) : std::nullopt;
    good = good && result;
    if (good) index = std::move(*result);
  };
  for_each_access(changed, [&](Access& access) {
    rewrite(access.index);
    for (auto& guard : access.guards) rewrite(guard.index);
  });
  if (good) kernel = std::move(changed);
  return good;
}

void coalesce(Kernel& kernel) {
  for (int axis = 0; axis + 1 < static_cast<int>(kernel.axes.size());)
    if (kernel.axes[axis].kind != kernel.axes[axis + 1].kind || !merge_if_free(kernel, axis)) ++axis;
    else axis = std::max(0, axis - 1);
}

bool uses_axis(const Access& access, int axis) {
  return kernel::uses(access.index, axis) ||
         std::any_of(access.guards.begin(), access.guards.end(),
                     [&](const auto& guard) { return kernel::uses(guard.index, axis); });
}

std::vector<Traffic> traffic_of(const Kernel& kernel) {
  std::vector<Traffic> all;
  auto note = [&](const Access& access, bool is_store) {
    int64_t points = 1;
    for (int axis = 0; axis < static_cast<int>(kernel.axes.size()); ++axis)
      if (uses_axis(access, axis)) points *= kernel.axes[axis].extent;
    const int64_t size = size_of(kernel.buffers[access.buffer].dtype);
    all.push_back({&access, is_store, points * size, size});
  };
  for (const auto& store : kernel.stores) note(store.access, true);
  for (const Expr& expr : kernel.exprs)
    if (flat::is_load(expr)) note(expr.access, false);
  std::stable_sort(all.begin(), all.end(), [](const Traffic& a, const Traffic& b) { return a.bytes > b.bytes; });
  return all;
}

void order_by_stride(Kernel& kernel) {
  const auto traffic = traffic_of(kernel);
  const int parallel = parallel_axes(kernel);
  const int count = static_cast<int>(kernel.axes.size());
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  // The largest access decides; where it does not walk an axis plainly, the next one does.
  auto outer_to_inner = [&](int a, int b) {
    for (const auto& one : traffic) {
      const int64_t left = std::abs(stride_along(*one.access, a)), right = std::abs(stride_along(*one.access, b));
      if (left != 0 && right != 0) return left > right;
    }
    return false;
  };
  auto insertion_sort = [&](int first, int last) {  // the relation need not be transitive; equal axes stay
    for (int i = first + 1; i < last; ++i)
      for (int j = i; j > first && outer_to_inner(order[j], order[j - 1]); --j) std::swap(order[j], order[j - 1]);
  };
  insertion_sort(0, parallel);
  if (!has_positions(kernel)) insertion_sort(parallel, count);
  std::vector<Axis> axes;
  std::vector<Index> replacement(count);
  for (int place = 0; place < count; ++place) {
    axes.push_back(kernel.axes[order[place]]);
    replacement[order[place]] = kernel::symbol_index(place);
  }
  KW_ASSERT(replace_axes(kernel, std::move(axes), replacement), "a permutation of axes is always expressible");
}

void put_meeting_axes_last(Kernel& kernel) {
  const int count = static_cast<int>(kernel.axes.size());
  std::vector<bool> meets(count, false);
  for (const auto& store : kernel.stores)
    for (int axis = 0; axis < count; ++axis)
      meets[axis] = meets[axis] || (flat::scatter_of(kernel, store) && !uses_axis(store.access, axis));
  std::vector<Axis> axes;
  std::vector<Index> replacement(count);
  for (const bool wanted : {false, true})
    for (int axis = 0; axis < count; ++axis) {
      if (meets[axis] != wanted) continue;
      replacement[axis] = kernel::symbol_index(static_cast<int>(axes.size()));
      axes.push_back(kernel.axes[axis]);
      if (wanted) axes.back().kind = AxisKind::kReduce;
    }
  KW_ASSERT(replace_axes(kernel, std::move(axes), replacement), "a permutation of axes is always expressible");
}

void face_forwards(Kernel& kernel) {
  const int scan = flat::scan_axis_of(kernel);
  int64_t forwards = 0;
  for (const auto& one : traffic_of(kernel))
    forwards += stride_along(*one.access, scan) < 0 ? -one.bytes : stride_along(*one.access, scan) > 0 ? one.bytes : 0;
  if (forwards >= 0) return;
  std::vector<Axis> axes = kernel.axes;
  axes[scan].reversed = !axes[scan].reversed;
  std::vector<Index> replacement;
  for (int axis = 0; axis < static_cast<int>(axes.size()); ++axis) {
    const Index index = kernel::symbol_index(axis);
    replacement.push_back(axis == scan ? Index(axes[scan].extent - 1) - index : index);
  }
  replace_axes(kernel, std::move(axes), replacement);
}

bool flatten(Kernel& kernel, int first, int last) {
  if (first >= last) return true;
  Fused fused = fuse_range(kernel, first, last);
  return replace_axes(kernel, std::move(fused.axes), fused.replacement);
}

bool split_off_parallel(Kernel& kernel, int axis, int64_t parts, int64_t length) {
  const int parallel = parallel_axes(kernel);
  const int64_t extent = kernel.axes[axis].extent;
  KW_ASSERT(axis >= parallel && parts * length >= extent && (parts - 1) * length < extent,
            "parts must cover a reduce axis");
  if (parts * length > extent) {
    const flat::Guard inside{kernel::symbol_index(axis), 0, extent};
    for (Expr& expr : kernel.exprs)
      if (expr.kind == ExprKind::kReduce || (flat::is_load(expr) && uses_axis(expr.access, axis)))
        expr.access.guards.push_back(inside);
  }
  std::vector<Axis> axes = kernel.axes;
  axes[axis].extent = length;
  Axis part = axes[axis];
  part.kind = AxisKind::kParallel;
  part.extent = parts;
  axes.insert(axes.begin() + parallel, part);
  std::vector<Index> replacement;
  for (int old = 0; old < static_cast<int>(kernel.axes.size()); ++old) {
    const int place = old < parallel ? old : old + 1;
    Index index = kernel::symbol_index(place);
    if (old == axis) index = kernel::symbol_index(parallel) * length + (length == 1 ? Index(0) : index);
    replacement.push_back(index);
  }
  if (!replace_axes(kernel, axes, replacement)) return false;
  if (length == 1 && static_cast<int>(kernel.axes.size()) > parallel + 2) {  // the axis went over entirely
    std::vector<Index> without;
    axes = kernel.axes;
    axes.erase(axes.begin() + axis + 1);
    for (int old = 0; old < static_cast<int>(kernel.axes.size()); ++old)
      without.push_back(old == axis + 1 ? Index(0) : kernel::symbol_index(old < axis + 1 ? old : old - 1));
    return replace_axes(kernel, std::move(axes), without);
  }
  return true;
}

int parallel_axes(const Kernel& kernel) {
  return static_cast<int>(std::count_if(kernel.axes.begin(), kernel.axes.end(),
                                        [](const Axis& axis) { return axis.kind == AxisKind::kParallel; }));
}

int64_t parallel_points(const Kernel& kernel) {
  int64_t points = 1;
  for (const Axis& axis : kernel.axes) points *= axis.kind == AxisKind::kParallel ? axis.extent : 1;
  return points;
}

int64_t reduce_points(const Kernel& kernel) {
  int64_t points = 1;
  for (const Axis& axis : kernel.axes) points *= is_serial(axis) ? axis.extent : 1;
  return points;
}

bool stores_over_reduce_axes(const Kernel& kernel) {
  for (const auto& store : kernel.stores)
    for (int axis = parallel_axes(kernel); axis < static_cast<int>(kernel.axes.size()); ++axis)
      if (uses_axis(store.access, axis)) return true;
  return false;
}

void name_axes(Kernel& kernel) {
  const int parallel = parallel_axes(kernel);
  if (parallel == 0) {
    std::vector<Axis> axes = kernel.axes;
    axes.insert(axes.begin(), Axis{});
    std::vector<Index> replacement;
    for (int axis = 1; axis < static_cast<int>(axes.size()); ++axis) replacement.push_back(kernel::symbol_index(axis));
    replace_axes(kernel, std::move(axes), replacement);
    name_axes(kernel);
    return;
  }
  const int count = static_cast<int>(kernel.axes.size()), reduce = count - parallel;
  auto name = [&](int axis, std::string text) { kernel.axes[axis].name = std::move(text); };
  if (reduce == 0) {
    static const std::vector<std::vector<std::string>> names = {
        {"element"}, {"row", "column"}, {"batch", "row", "column"}, {"batch", "channel", "row", "column"}};
    for (int axis = 0; axis < parallel; ++axis)
      name(axis, parallel <= 4          ? names[parallel - 1][axis]
                 : axis + 1 == parallel ? "column"
                                        : "outer_" + std::to_string(axis));
    return;
  }
  // Rows run along the reduce axes when those are contiguous.
  bool reduces_columns = true;
  for (const auto& one : traffic_of(kernel)) {
    const bool contiguous_reduce = stride_along(*one.access, count - 1) == 1,
               contiguous_parallel = stride_along(*one.access, parallel - 1) == 1;
    if (contiguous_reduce == contiguous_parallel) continue;
    reduces_columns = contiguous_reduce;
    break;
  }
  name(parallel - 1, reduces_columns ? "row" : "column");
  for (int axis = 0; axis + 1 < parallel; ++axis) name(axis, parallel == 2 ? "batch" : "batch_" + std::to_string(axis));
  name(count - 1, reduces_columns ? "column" : "row");
  for (int axis = parallel; axis + 1 < count; ++axis)
    name(axis, reduce == 2 ? "slice" : "slice_" + std::to_string(axis - parallel));
}

}  // namespace kw::plan
