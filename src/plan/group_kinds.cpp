#include "plan/group_kinds.hpp"

#include <algorithm>

#include "plan/axes.hpp"

namespace kw::plan {

namespace {

bool has_reduce_axes(const LoweredGroup& group) { return group.kernel.parallel < axis_count(group.kernel); }

}  // namespace

bool is_pointwise(const LoweredGroup& group) { return !has_reduce_axes(group); }
bool is_scan(const LoweredGroup& group) { return scan_axis_of(group.kernel) >= 0; }
bool is_bags(const LoweredGroup& group) { return group.bags && !stores_over_reduce_axes(group.kernel); }
bool is_sliding(const LoweredGroup& group) { return group.windowed && !stores_over_reduce_axes(group.kernel); }
bool is_reduction(const LoweredGroup& group) {
  return has_reduce_axes(group) && !stores_over_reduce_axes(group.kernel);
}
bool is_normalisation(const LoweredGroup& group) {
  return has_reduce_axes(group) && stores_over_reduce_axes(group.kernel);
}

int dearest_operation(const LoweredGroup& group) {
  int dearest = 0;
  for (const Expr& expr : group.kernel.exprs)
    if (expr.kind == ExprKind::kOp) dearest = std::max(dearest, kernel::additions_of(expr.op));
  return dearest;
}

void name_bags(GroupKernel& kernel) {
  for (int axis = 0; axis < axis_count(kernel); ++axis) {
    const bool is_column = kernel.parallel > 1 && axis + 1 == kernel.parallel;
    kernel.symbols[axis].name = is_serial(kernel, axis) ? "entry"
                                : is_column             ? "column"
                                : axis > 0              ? "bag_" + std::to_string(axis + 1)
                                                        : "bag";
  }
}

void name_windows(GroupKernel& kernel) {
  const int parallel = kernel.parallel, count = axis_count(kernel);
  static const std::vector<std::string> outer = {"column", "row", "slice", "batch"},
                                        offsets = {"window_column", "window_row", "window_slice"};
  const auto name = [&](int first, int end, const std::vector<std::string>& names, bool channels) {
    for (int axis = end - 1; axis >= first; --axis) {
      const auto place = static_cast<size_t>(end - 1 - axis);
      const bool outermost = channels && axis == first && axis + 1 < end;
      kernel.symbols[axis].name = outermost              ? "plane"
                                  : place < names.size() ? names[place]
                                                         : names.back() + "_" + std::to_string(place);
    }
  };
  name(0, parallel, outer, true);
  name(parallel, count, offsets, false);
}

}  // namespace kw::plan
