#include "plan/axes.hpp"

#include <algorithm>
#include <numeric>

#include "support/error.hpp"

namespace kw::plan {

namespace {

std::vector<kernel::SymbolRange> ranges_of(const std::vector<kernel::SymbolInfo>& axes) {
  std::vector<kernel::SymbolRange> ranges;
  ranges.reserve(axes.size());
  for (const kernel::SymbolInfo& axis : axes) ranges.push_back(axis.range);
  return ranges;
}

// A position along the reduce axes is asked for, or points that meet there must do so in order.
bool has_positions(const GroupKernel& kernel) {
  return scatters(kernel) || std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) {
           return expr.kind == ExprKind::kReduce &&
                  (expr.reduce == ReduceOp::kArgMax || expr.reduce == ReduceOp::kArgMin);
         });
}

// Replacement that makes axes[first..last] one axis; the others keep their order.
struct Fused {
  std::vector<kernel::SymbolInfo> axes;
  int parallel = 0;
  std::vector<Index> replacement;
};

Fused fuse_range(const GroupKernel& kernel, int first, int last) {
  Fused fused;
  std::vector<int> places;
  int64_t inner = 1;
  for (int axis = first; axis <= last; ++axis) inner *= extent_of(kernel, axis);
  for (int axis = 0; axis < axis_count(kernel); ++axis) {
    if (axis <= first || axis > last) {
      fused.axes.push_back(axis == first ? axis_of(kernel.symbols[axis].name, inner) : kernel.symbols[axis]);
      fused.parallel += !is_serial(kernel, axis);
    }
    places.push_back(static_cast<int>(fused.axes.size()) - 1);
  }
  const std::vector<kernel::SymbolRange> ranges = ranges_of(fused.axes);
  for (int axis = 0; axis < axis_count(kernel); ++axis) {
    Index place = axis_index(places[axis], ranges);
    if (axis >= first && axis <= last) {
      const int64_t extent = extent_of(kernel, axis);
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

bool merge_if_free(GroupKernel& kernel, int outer) {
  Fused fused = fuse_range(kernel, outer, outer + 1);
  GroupKernel trial = kernel;
  if (!replace_axes(trial, std::move(fused.axes), fused.parallel, fused.replacement)) return false;
  bool plain = true;
  for_each_index(trial, [&](const Index& index) { plain = plain && walks_plainly(index, outer); });
  if (!plain) return false;
  kernel = std::move(trial);
  return true;
}

}  // namespace

bool replace_axes(GroupKernel& kernel, std::vector<kernel::SymbolInfo> axes, int parallel,
                  const std::vector<Index>& replacement) {
  GroupKernel changed = kernel;
  changed.symbols = std::move(axes);
  changed.parallel = parallel;
  const std::vector<kernel::SymbolRange> ranges = ranges_of(changed.symbols);
  bool good = true;
  for_each_index(changed, [&](Index& index) {
    auto result = good ? kernel::replace_digits(index, replacement, ranges) : std::nullopt;
    good = good && result;
    if (good) index = std::move(*result);
  });
  std::vector<kernel::Symbol> serial;
  for (int axis = parallel; axis < axis_count(changed); ++axis) serial.push_back(axis);
  for (Expr& expr : changed.exprs)
    if (!expr.axes.empty()) expr.axes = serial;
  if (good) kernel = std::move(changed);
  return good;
}

void coalesce(GroupKernel& kernel) {
  for (int axis = 0; axis + 1 < axis_count(kernel);)
    if (is_serial(kernel, axis) != is_serial(kernel, axis + 1) || !merge_if_free(kernel, axis)) ++axis;
    else axis = std::max(0, axis - 1);
}

std::vector<Traffic> traffic_of(const GroupKernel& kernel) {
  std::vector<Traffic> all;
  auto note = [&](const Access& access, bool is_store) {
    int64_t points = 1;
    const std::vector<bool> uses = axes_of_access(kernel, access);
    for (int axis = 0; axis < axis_count(kernel); ++axis)
      if (uses[axis]) points *= extent_of(kernel, axis);
    const int64_t size = size_of(kernel.buffers[access.buffer].dtype);
    all.push_back({&access, is_store, points * size, size});
  };
  for (const auto& store : kernel.stores) note(store.access, true);
  for (const Expr& expr : kernel.exprs)
    if (is_load(expr)) note(expr.access, false);
  std::stable_sort(all.begin(), all.end(), [](const Traffic& a, const Traffic& b) { return a.bytes > b.bytes; });
  return all;
}

void order_by_stride(GroupKernel& kernel) {
  const auto traffic = traffic_of(kernel);
  const int parallel = kernel.parallel;
  const int count = axis_count(kernel);
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
  std::vector<kernel::SymbolInfo> axes;
  std::vector<Index> replacement(count);
  for (int place = 0; place < count; ++place) {
    axes.push_back(kernel.symbols[order[place]]);
    replacement[order[place]] = kernel::symbol_index(place);
  }
  KW_ASSERT(replace_axes(kernel, std::move(axes), parallel, replacement), "a permutation is always expressible");
}

void put_meeting_axes_last(GroupKernel& kernel) {
  const int count = axis_count(kernel);
  std::vector<bool> meets(count, false);
  for (const auto& store : kernel.stores)
    for (int axis = 0; axis < count; ++axis)
      meets[axis] = meets[axis] || (is_scatter(store) && !uses_axis(kernel, store.access, axis));
  std::vector<kernel::SymbolInfo> axes;
  std::vector<Index> replacement(count);
  for (const bool wanted : {false, true})
    for (int axis = 0; axis < count; ++axis) {
      if (meets[axis] != wanted) continue;
      replacement[axis] = kernel::symbol_index(static_cast<int>(axes.size()));
      axes.push_back(kernel.symbols[axis]);
    }
  const auto parallel = static_cast<int>(std::count(meets.begin(), meets.end(), false));
  KW_ASSERT(replace_axes(kernel, std::move(axes), parallel, replacement), "a permutation is always expressible");
}

void face_forwards(GroupKernel& kernel) {
  const int scan = scan_axis_of(kernel);
  int64_t forwards = 0;
  for (const auto& one : traffic_of(kernel))
    forwards += stride_along(*one.access, scan) < 0 ? -one.bytes : stride_along(*one.access, scan) > 0 ? one.bytes : 0;
  if (forwards >= 0) return;
  std::vector<Index> replacement;
  for (int axis = 0; axis < axis_count(kernel); ++axis) {
    const Index index = kernel::symbol_index(axis);
    replacement.push_back(axis == scan ? Index(extent_of(kernel, scan) - 1) - index : index);
  }
  if (!replace_axes(kernel, kernel.symbols, kernel.parallel, replacement)) return;
  for (Expr& expr : kernel.exprs)
    if (expr.kind == ExprKind::kScan) expr.reversed = !expr.reversed;
}

bool flatten(GroupKernel& kernel, int first, int last) {
  if (first >= last) return true;
  Fused fused = fuse_range(kernel, first, last);
  return replace_axes(kernel, std::move(fused.axes), fused.parallel, fused.replacement);
}

namespace {

// What varies along the axis is read, and what is folded is, only before its end.
void end_axis_at(GroupKernel& kernel, int axis, int64_t end) {
  std::vector<Expr> exprs(3);
  exprs[0].kind = ExprKind::kIndex;
  exprs[0].index = kernel::symbol_index(axis);
  exprs[1].integer = end;
  exprs[0].dtype = exprs[1].dtype = DType::i64;
  exprs[2].kind = ExprKind::kOp;
  exprs[2].op = ScalarOp::kLess;
  exprs[2].dtype = DType::b1;
  exprs[2].operands = {0, 1};
  const ExprId inside = 2;
  std::vector<ExprId> place;
  for (const Expr& old : kernel.exprs) {
    const bool ends = old.kind == ExprKind::kReduce || (is_load(old) && uses_axis(kernel, old.access, axis));
    Expr expr = old;
    kernel::renumber(expr, place);
    if (ends && expr.access.mask == kNoExpr) {
      expr.access.mask = inside;
    } else if (ends) {
      Expr both = exprs[inside];
      both.op = ScalarOp::kLogicalAnd;
      both.operands = {expr.access.mask, inside};
      expr.access.mask = static_cast<ExprId>(exprs.size());
      exprs.push_back(std::move(both));
    }
    place.push_back(static_cast<ExprId>(exprs.size()));
    exprs.push_back(std::move(expr));
  }
  kernel.exprs = std::move(exprs);
  for (Store& store : kernel.stores) {
    store.value = place[store.value];
    kernel::renumber(store.access, place);
  }
}

}  // namespace

bool split_off_parallel(GroupKernel& kernel, int axis, int64_t parts, int64_t length) {
  const int parallel = kernel.parallel;
  const int64_t extent = extent_of(kernel, axis);
  KW_ASSERT(axis >= parallel && parts * length >= extent && (parts - 1) * length < extent,
            "parts must cover a reduce axis");
  if (parts * length > extent) end_axis_at(kernel, axis, extent);
  std::vector<kernel::SymbolInfo> axes = kernel.symbols;
  axes[axis] = axis_of(axes[axis].name, length);
  axes.insert(axes.begin() + parallel, axis_of(axes[axis].name, parts));
  std::vector<Index> replacement;
  for (int old = 0; old < axis_count(kernel); ++old) {
    Index index = kernel::symbol_index(old < parallel ? old : old + 1);
    if (old == axis) index = kernel::symbol_index(parallel) * length + (length == 1 ? Index(0) : index);
    replacement.push_back(index);
  }
  if (!replace_axes(kernel, axes, parallel + 1, replacement)) return false;
  if (length == 1 && axis_count(kernel) > parallel + 2) {  // the axis went over entirely
    std::vector<Index> without;
    axes = kernel.symbols;
    axes.erase(axes.begin() + axis + 1);
    for (int old = 0; old < axis_count(kernel); ++old)
      without.push_back(old == axis + 1 ? Index(0) : kernel::symbol_index(old < axis + 1 ? old : old - 1));
    return replace_axes(kernel, std::move(axes), parallel + 1, without);
  }
  return true;
}

int64_t parallel_points(const GroupKernel& kernel) {
  int64_t points = 1;
  for (int axis = 0; axis < kernel.parallel; ++axis) points *= extent_of(kernel, axis);
  return points;
}

int64_t reduce_points(const GroupKernel& kernel) {
  int64_t points = 1;
  for (int axis = kernel.parallel; axis < axis_count(kernel); ++axis) points *= extent_of(kernel, axis);
  return points;
}

bool stores_over_reduce_axes(const GroupKernel& kernel) {
  for (const auto& store : kernel.stores)
    for (int axis = kernel.parallel; axis < axis_count(kernel); ++axis)
      if (uses_axis(kernel, store.access, axis)) return true;
  return false;
}

void name_axes(GroupKernel& kernel) {
  const int parallel = kernel.parallel;
  if (parallel == 0) {
    std::vector<kernel::SymbolInfo> axes = kernel.symbols;
    axes.insert(axes.begin(), axis_of("", 1));
    std::vector<Index> replacement;
    for (int axis = 1; axis < static_cast<int>(axes.size()); ++axis) replacement.push_back(kernel::symbol_index(axis));
    replace_axes(kernel, std::move(axes), 1, replacement);
    name_axes(kernel);
    return;
  }
  const int count = axis_count(kernel), reduce = count - parallel;
  auto name = [&](int axis, std::string text) { kernel.symbols[axis].name = std::move(text); };
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
