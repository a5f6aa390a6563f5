// Bags of rows: a program takes one bag and some columns, and walks the bag's entries several at a time, so that their
// rows are on the way together.
#include <algorithm>

#include "plan/axes.hpp"
#include "plan/group_kinds.hpp"
#include "plan/group_tiles.hpp"
#include "targets/triton/schedulers.hpp"

namespace kw::triton {

using namespace plan;

namespace {

constexpr int64_t kLanes = 1024;  // of a program at the most: columns times entries at once
constexpr int64_t kEntries = 16;  // at once

Parameters defaults(const LoweredGroup& group, const DeviceDescription&) {
  GroupKernel kernel = group.kernel;
  order_by_stride(kernel);
  const int inner = kernel.parallel - 1;
  const int64_t columns = inner < 0 ? 1 : std::min<int64_t>(next_power_of_two(extent_of(kernel, inner)), 256);
  const int64_t entries = std::min({kEntries, kLanes / columns, next_power_of_two(reduce_points(kernel))});
  return {
      {"x_block", columns}, {"r_block", entries}, {"num_warps", std::clamp<int64_t>(columns * entries / 128, 1, 4)}};
}

const ParameterTable& takes() {
  static const ParameterTable table({
      {.name = "x_block",
       .least = 1,
       .most = kMostLanes,
       .unsaid = 1,
       .powers_of_two = true,
       .tried = {16, 32, 64, 128, 256, 512}},
      {.name = "r_block",
       .least = 1,
       .most = kMostLanes,
       .unsaid = 1,
       .powers_of_two = true,
       .tried = {1, 4, 8, 16, 32}},
      {.name = "num_warps", .least = 1, .most = kMostWarps, .unsaid = 4, .powers_of_two = true, .tried = {1, 2, 4}},
  });
  return table;
}

std::vector<ParameterRange> space(const LoweredGroup&, const DeviceDescription&) {
  std::vector<ParameterRange> ranges;
  for (const ParameterSpec& spec : takes().specs()) ranges.push_back(takes().range(spec.name));
  return ranges;
}

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription&) {
  GroupKernel& kernel = group.kernel;
  order_by_stride(kernel);
  const ParameterTable& table = takes();
  const int inner = kernel.parallel - 1;
  lower::KernelSchedule schedule = in_single_points(kernel, table.read(parameters, "num_warps"));
  schedule.cache_hints = true;
  for (int axis = 0; axis < axis_count(kernel); ++axis) {
    const int64_t extent = extent_of(kernel, axis);
    const auto width = [&](std::string_view name) {
      return std::min(table.read(parameters, name), next_power_of_two(extent));
    };
    if (axis == inner && inner > 0) schedule.axes[axis] = in_blocks(kernel, axis, width("x_block"));
    if (!is_serial(kernel, axis) || width("r_block") >= extent) continue;
    schedule.axes[axis] = in_loop(width("r_block"));
    schedule.axes[axis].stops = true;
  }
  ScheduledGroup result;
  result.tiles.push_back(as_tiles(std::move(group), std::move(schedule)));
  return result;
}

}  // namespace

const Scheduler kBagScheduler{kBags, GroupWork::kElements, is_bags, takes, defaults, space, lower};

}  // namespace kw::triton
