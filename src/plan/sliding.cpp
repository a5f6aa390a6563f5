// Sliding windows on a GPU: tiles over the last two axes of the result, so that the lines that windows share come out of the cache; the offsets of
// a small window are written out, those of a large one looped over. Windows that lie far apart are read along their rows instead.
#include <algorithm>

#include "plan/axes.hpp"
#include "plan/scheduler.hpp"

namespace kw::plan {

namespace {

using kernel::AxisKind;
using kernel::Kernel;

constexpr int64_t kWrittenOut = 64;          // offsets of a window that is written out
constexpr int64_t kFarApart = 5;             // windows this many elements apart use a fifth of each line that a strided load touches

void prepare(Kernel& kernel) {
  order_by_stride(kernel);
  coalesce(kernel);
}

// Distance of neighbouring windows' elements in memory, along the innermost axis of the result; of the largest load.
int64_t window_stride(const Kernel& kernel, int inner) {
  for (const auto& one : traffic_of(kernel)) {
    if (one.is_store) continue;
    for (int axis = inner + 1; axis < static_cast<int>(kernel.axes.size()); ++axis)
      if (uses_axis(*one.access, axis)) return std::abs(stride_along(*one.access, inner));
  }
  return 1;
}

// The largest block that wastes little: 186 windows are 3 blocks of 64 rather than one of 256.
int64_t block_for(int64_t extent, int64_t most) {
  int64_t best = std::min(most, next_power_of_two(extent));
  const auto padded = [&](int64_t block) { return ceil_divide(extent, block) * block; };
  for (int64_t block = best / 2; block >= 32; block /= 2)
    if (padded(block) * 10 < padded(best) * 9) best = block;
  return best;
}

bool can_take(const LoweredGroup& group) { return group.windowed && !stores_over_reduce_axes(group.kernel); }

Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  if (device.target != "triton") return {};
  Kernel kernel = group.kernel;
  prepare(kernel);
  const int inner = parallel_axes(kernel) - 1;
  if (inner < 0) return {{"segments", 1}, {"x_block", 1}, {"y_block", 1}, {"num_warps", 4}};
  const int64_t width = kernel.axes[inner].extent, height = inner > 0 ? kernel.axes[inner - 1].extent : 1;
  const bool reduces = inner + 1 < static_cast<int>(kernel.axes.size());
  const int64_t offsets = reduces ? next_power_of_two(kernel.axes.back().extent) : 1;
  const bool segments = reduces && kernel.axes.back().extent >= kFarApart && (window_stride(kernel, inner) >= kFarApart || width < 8);
  int64_t tile = segments ? 2048 / std::min<int64_t>(offsets, 1024) : 1024;
  while (tile > 64 && parallel_points(kernel) / tile < 4 * device.units) tile /= 2;
  Parameters chosen = {{"segments", segments}};
  chosen["x_block"] = block_for(width, std::min<int64_t>(tile, 512));
  chosen["y_block"] = std::max<int64_t>(1, std::min(tile / chosen["x_block"], next_power_of_two(height)));
  chosen["num_warps"] = std::clamp<int64_t>(chosen["x_block"] * chosen["y_block"] * (segments ? offsets : 1) / (segments ? 256 : 128), 1, 8);
  return chosen;
}

std::vector<ParameterRange> space(const LoweredGroup&, const DeviceDescription& device) {
  if (device.target != "triton") return {};
  return {{"segments", {0, 1}}, {"x_block", {32, 64, 128, 256, 512}}, {"y_block", {1, 2, 4, 8, 16}}, {"num_warps", {1, 2, 4, 8}}};
}

void name_windows(Kernel& kernel) {
  const int parallel = parallel_axes(kernel), count = static_cast<int>(kernel.axes.size());
  static const std::vector<std::string> outer = {"column", "row", "slice", "batch"}, offsets = {"window_column", "window_row", "window_slice"};
  const auto name = [&](int first, int end, const std::vector<std::string>& names, bool channels) {
    for (int axis = end - 1; axis >= first; --axis) {
      const auto place = static_cast<size_t>(end - 1 - axis);
      const bool outermost = channels && axis == first && axis + 1 < end;
      kernel.axes[axis].name = outermost ? "plane" : place < names.size() ? names[place] : names.back() + "_" + std::to_string(place);
    }
  };
  name(0, parallel, outer, true);
  name(parallel, count, offsets, false);
}

ScheduledGroup scheduled(LoweredGroup group) {
  ScheduledGroup result;
  result.kernels.push_back(as_scheduled(std::move(group)));
  name_windows(result.kernels.back().kernel);
  return result;
}

ScheduledGroup lower_on_cpu(LoweredGroup group) {
  ScheduledGroup result = lower_for_cpu(std::move(group));
  Kernel& kernel = result.kernels.back().kernel;
  const int inner = parallel_axes(kernel) - 1;
  // The SIMD loop runs along neighbouring windows, unless those are few and long.
  const bool across = kernel.axes[inner].extent >= 8 || kernel.axes.back().extent < 8;
  for (auto& axis : kernel.axes) axis.unrolled = across && axis.kind == AxisKind::kReduce;
  name_windows(kernel);
  return result;
}

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device) {
  if (device.target != "triton") return lower_on_cpu(std::move(group));
  Kernel& kernel = group.kernel;
  prepare(kernel);
  const int inner = parallel_axes(kernel) - 1, last = static_cast<int>(kernel.axes.size()) - 1;
  const bool segments = parameter(parameters, "segments", 0) != 0, written_out = reduce_points(kernel) <= kWrittenOut;
  for (int axis = 0; axis <= last; ++axis) {
    auto& one = kernel.axes[axis];
    one.block = 1;
    if (one.kind == AxisKind::kParallel) {
      if (axis >= inner - 1) one.block = std::min(parameter(parameters, axis == inner ? "x_block" : "y_block", 1), next_power_of_two(one.extent));
    } else if (segments && axis == last) {
      one.block = std::min<int64_t>(1024, next_power_of_two(one.extent));
      one.looped = one.block < one.extent;
    } else {
      one.looped = true;
      one.unrolled = written_out;
    }
  }
  kernel.num_warps = static_cast<int>(parameter(parameters, "num_warps", 4));
  kernel.num_stages = 1;
  return scheduled(std::move(group));
}

}  // namespace

const Scheduler kSlidingScheduler{"sliding", can_take, defaults, space, lower};

}  // namespace kw::plan
