#include "plan/group_kinds.hpp"

#include "plan/axes.hpp"

namespace kw::plan {

using flat::AxisKind;
using flat::Kernel;

namespace {

bool has_reduce_axes(const LoweredGroup& group) {
  return parallel_axes(group.kernel) < static_cast<int>(group.kernel.axes.size());
}

}  // namespace

bool is_pointwise(const LoweredGroup& group) {
  return reduce_points(group.kernel) == 1 && parallel_axes(group.kernel) == static_cast<int>(group.kernel.axes.size());
}
bool is_scan(const LoweredGroup& group) { return flat::scan_axis_of(group.kernel) >= 0; }
bool is_bags(const LoweredGroup& group) { return group.bags && !stores_over_reduce_axes(group.kernel); }
bool is_sliding(const LoweredGroup& group) { return group.windowed && !stores_over_reduce_axes(group.kernel); }
bool is_reduction(const LoweredGroup& group) {
  return has_reduce_axes(group) && !stores_over_reduce_axes(group.kernel);
}
bool is_normalisation(const LoweredGroup& group) {
  return has_reduce_axes(group) && stores_over_reduce_axes(group.kernel);
}

void name_bags(Kernel& kernel) {
  int parallel = 0;
  for (auto& axis : kernel.axes) {
    if (axis.kind == AxisKind::kReduce) axis.name = "entry";
    else
      axis.name = parallel_axes(kernel) > 1 && ++parallel == parallel_axes(kernel) ? "column"
                  : parallel > 1                                                   ? "bag_" + std::to_string(parallel)
                                                                                   : "bag";
  }
}

void name_windows(Kernel& kernel) {
  const int parallel = parallel_axes(kernel), count = static_cast<int>(kernel.axes.size());
  static const std::vector<std::string> outer = {"column", "row", "slice", "batch"},
                                        offsets = {"window_column", "window_row", "window_slice"};
  const auto name = [&](int first, int end, const std::vector<std::string>& names, bool channels) {
    for (int axis = end - 1; axis >= first; --axis) {
      const auto place = static_cast<size_t>(end - 1 - axis);
      const bool outermost = channels && axis == first && axis + 1 < end;
      kernel.axes[axis].name = outermost              ? "plane"
                               : place < names.size() ? names[place]
                                                      : names.back() + "_" + std::to_string(place);
    }
  };
  name(0, parallel, outer, true);
  name(parallel, count, offsets, false);
}

}  // namespace kw::plan
