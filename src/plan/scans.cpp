// Scans: a program walks its rows in blocks with a carry between them, each element read and written once. Where the scanned axis is not the
// contiguous one, a tile of columns walks down it.
#include <algorithm>

#include "plan/axes.hpp"
#include "plan/scheduler.hpp"

namespace kw::plan {

namespace {

using kernel::AxisKind;
using kernel::Kernel;

// How a group's rows lie in memory, after ordering and coalescing.
struct Rows {
  int64_t count = 1;                   // points of the parallel axes
  int64_t length = 1;                  // of the scan axis
  bool along_rows = true;              // the scan axis is the contiguous one
};

void prepare(Kernel& kernel) {
  order_by_stride(kernel);
  coalesce(kernel);
  face_forwards(kernel);
}

Rows rows_of(const Kernel& kernel) {
  Rows rows;
  const int scan = kernel::scan_axis_of(kernel);
  rows.count = parallel_points(kernel);
  rows.length = kernel.axes[scan].extent;
  for (const auto& one : traffic_of(kernel)) {
    if (!uses_axis(*one.access, scan)) continue;
    for (int axis = 0; axis < static_cast<int>(kernel.axes.size()); ++axis)
      if (stride_along(*one.access, axis) == 1 && kernel.axes[axis].extent > 1) {
        rows.along_rows = axis == scan;
        return rows;
      }
  }
  return rows;
}

bool can_take(const LoweredGroup& group) { return kernel::scan_axis_of(group.kernel) >= 0; }

void choose_along_rows(const Rows& rows, Parameters& chosen, const DeviceDescription& device) {
  const int64_t width = next_power_of_two(rows.length);
  chosen["persistent"] = width <= 1024;
  chosen["r_block"] = std::min<int64_t>(width, 1024);
  // Short rows share a program.
  int64_t x_block = std::max<int64_t>(1, 1024 / width);
  x_block = std::min(x_block, next_power_of_two(rows.count));
  while (x_block > 1 && ceil_divide(rows.count, x_block) < 4 * device.units) x_block /= 2;
  chosen["x_block"] = x_block;
  // One warp: a scan then needs no shared memory and no barriers, 8 instructions an element instead of 13 for four warps and 16 for eight, and 32
  // programs of 4 KB each in flight hide the memory's latency.
  chosen["num_warps"] = 1;
}

void choose_across_rows(const Kernel& kernel, const Rows& rows, Parameters& chosen, const DeviceDescription& device) {
  const int parallel = parallel_axes(kernel);
  const int64_t inner = kernel.axes[parallel - 1].extent;
  // One warp with four columns a thread: each thread scans its columns by itself.
  int64_t x_block = std::min<int64_t>(128, next_power_of_two(inner));
  while (x_block > 32 && ceil_divide(rows.count, x_block) < 4 * device.units) x_block /= 2;
  chosen["x_block"] = x_block;
  chosen["r_block"] = std::min<int64_t>(next_power_of_two(rows.length), 16);
  chosen["persistent"] = chosen["r_block"] >= rows.length;
  chosen["num_warps"] = 1;
}

Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  if (device.target != "triton") return {};
  Kernel kernel = group.kernel;
  prepare(kernel);
  const Rows rows = rows_of(kernel);
  Parameters chosen;
  if (rows.along_rows) choose_along_rows(rows, chosen, device);
  else choose_across_rows(kernel, rows, chosen, device);
  return chosen;
}

std::vector<ParameterRange> space(const LoweredGroup& group, const DeviceDescription& device) {
  if (device.target != "triton") {
    LoweredGroup facing = group;
    face_forwards(facing.kernel);
    return space_for_cpu(facing);
  }
  Kernel kernel = group.kernel;
  prepare(kernel);
  const Rows rows = rows_of(kernel);
  std::vector<ParameterRange> ranges = {{"num_warps", {1, 2, 4, 8}}, {"x_block", {1, 2, 4, 8, 16, 32, 64, 128, 256}}};
  if (rows.along_rows) ranges.push_back({"r_block", {512, 1024, 2048, 4096, 8192}});
  else ranges.push_back({"r_block", {1, 4, 8, 16, 32, 64}});
  if (next_power_of_two(rows.length) <= 8192) ranges.push_back({"persistent", {0, 1}});
  return ranges;
}

// Blocks on the axes of one prepared kernel.
void block(Kernel& kernel, const Parameters& parameters) {
  const int64_t x_block = parameter(parameters, "x_block", 1);
  int parallel = parallel_axes(kernel);
  // Few columns per step of an outer axis waste lanes: walk the parallel axes as one.
  if (parallel > 1 && kernel.axes[parallel - 1].extent < x_block && flatten(kernel, 0, parallel - 1)) parallel = 1;
  for (auto& axis : kernel.axes) axis.block = 1;
  if (parallel > 0) kernel.axes[parallel - 1].block = std::min(x_block, next_power_of_two(kernel.axes[parallel - 1].extent));
  auto& scan = kernel.axes.back();
  scan.looped = parameter(parameters, "persistent", 0) == 0;
  scan.block = next_power_of_two(scan.extent);
  if (scan.looped) scan.block = std::min(parameter(parameters, "r_block", 1024), scan.block);
  kernel.num_warps = static_cast<int>(parameter(parameters, "num_warps", 4));
  kernel.num_stages = 1;
}

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device) {
  if (device.target != "triton") {
    face_forwards(group.kernel);
    return lower_for_cpu(std::move(group), parameters);
  }
  prepare(group.kernel);
  block(group.kernel, parameters);
  ScheduledGroup result;
  result.kernels.push_back(as_scheduled(std::move(group)));
  return result;
}

}  // namespace

const Scheduler kScanScheduler{"scan", can_take, defaults, space, lower};

}  // namespace kw::plan
