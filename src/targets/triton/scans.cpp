// Scans: a program walks its rows in blocks with a carry between them, each element read and written once. Where the
// scanned axis is not the contiguous one, a tile of columns walks down it.
#include <algorithm>
#include <bit>

#include "lower/scans.hpp"
#include "plan/axes.hpp"
#include "plan/group_kinds.hpp"
#include "plan/group_tiles.hpp"
#include "targets/triton/schedulers.hpp"

namespace kw::triton {

using namespace plan;

namespace {

// How a group's rows lie in memory, after ordering and coalescing.
struct Rows {
  int64_t count = 1;       // points of the parallel axes
  int64_t length = 1;      // of the scan axis
  bool along_rows = true;  // the scan axis is the contiguous one
  bool forwards = true;    // most of what is read and written lies in the order of the walk
};

void prepare(GroupKernel& kernel) {
  order_by_stride(kernel);
  coalesce(kernel);
}

Rows rows_of(const GroupKernel& kernel) {
  Rows rows;
  const int scan = scan_axis_of(kernel);
  rows.count = parallel_points(kernel);
  rows.length = extent_of(kernel, scan);
  int64_t forwards = 0;
  for (const auto& one : traffic_of(kernel)) {
    const int64_t stride = stride_along(*one.access, scan);
    forwards += stride < 0 ? -one.bytes : stride > 0 ? one.bytes : 0;
  }
  rows.forwards = forwards >= 0;
  for (const auto& one : traffic_of(kernel)) {
    if (!uses_axis(kernel, *one.access, scan)) continue;
    for (int axis = 0; axis < axis_count(kernel); ++axis)
      if (stride_along(*one.access, axis) == 1 && extent_of(kernel, axis) > 1) {
        rows.along_rows = axis == scan;
        return rows;
      }
  }
  return rows;
}

// PyTorch's CUDA kernel multiplies along contiguous rows in chunks (aten/src/ATen/native/cuda/ScanUtils.cuh): two
// columns a thread, and as many threads a row as keep the ratio of a block's threads near that of rows to columns. 0:
// the whole row is scanned in another way.
int64_t chunk_of_product(const Rows& rows) {
  if (rows.count == 1) return 0;
  const auto log2_of = [](int64_t count) {
    return std::bit_width(static_cast<uint64_t>(next_power_of_two(count))) - 1;
  };
  const int64_t threads = std::clamp<int64_t>((9 + log2_of(rows.length) - log2_of(rows.count)) / 2, 4, 9);
  return int64_t{2} << threads;
}

// A row's product leaves the range of floats after a few dozen elements, and where, and whether for 0, infinity or NaN,
// depends on the order of multiplication: it is PyTorch's where that order can be had cheaply, which is while a chunk's
// row is a few values a lane.
constexpr int64_t kWidestNetwork = 256;

bool multiplies_in_order(const GroupKernel& kernel, const Rows& rows) {
  if (!rows.along_rows || !rows.forwards || chunk_of_product(rows) == 0 || chunk_of_product(rows) > kWidestNetwork)
    return false;
  return std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) {
    return expr.kind == ExprKind::kScan && expr.reduce == ReduceOp::kProd &&
           (expr.dtype == DType::f32 || expr.dtype == DType::f64);
  });
}

void choose_along_rows(const Rows& rows, Parameters& chosen, const DeviceDescription& device) {
  const int64_t width = next_power_of_two(rows.length);
  chosen["persistent"] = width <= 1024;
  chosen["r_block"] = std::min<int64_t>(width, 1024);
  // Short rows share a program.
  int64_t x_block = std::max<int64_t>(1, 1024 / width);
  x_block = std::min(x_block, next_power_of_two(rows.count));
  while (x_block > 1 && ceil_divide(rows.count, x_block) < 4 * device.units) x_block /= 2;
  chosen["x_block"] = x_block;
  // One warp: a scan then needs no shared memory and no barriers, 8 instructions an element instead of 13 for four
  // warps and 16 for eight, and 32 programs of 4 KB each in flight hide the memory's latency.
  chosen["num_warps"] = 1;
}

// Four rows a program, a warp each, and 256 elements of each on their way: on an H200 2.26 ms for 32,768 rows of
// 32,768, where one block of 32 at a time takes 2.70 and PyTorch's own kernel 4.5.
void choose_in_order(const Rows& rows, Parameters& chosen) {
  const int64_t block = std::min(chunk_of_product(rows), next_power_of_two(rows.length));
  chosen["persistent"] = block >= rows.length;
  chosen["r_block"] = block;
  chosen["prefetch"] = std::max<int64_t>(1, 256 / block);
  chosen["x_block"] = std::min<int64_t>(4, next_power_of_two(rows.count));
  chosen["num_warps"] = chosen["x_block"];
}

void choose_across_rows(const GroupKernel& kernel, const Rows& rows, Parameters& chosen,
                        const DeviceDescription& device) {
  const int parallel = kernel.parallel;
  const int64_t inner = extent_of(kernel, parallel - 1);
  // One warp with four columns a thread: each thread scans its columns by itself.
  int64_t x_block = std::min<int64_t>(128, next_power_of_two(inner));
  while (x_block > 32 && ceil_divide(rows.count, x_block) < 4 * device.units) x_block /= 2;
  chosen["x_block"] = x_block;
  chosen["r_block"] = std::min<int64_t>(next_power_of_two(rows.length), 16);
  chosen["persistent"] = chosen["r_block"] >= rows.length;
  chosen["num_warps"] = 1;
}

// Do all sorts want so few places that they are picked one after the other?
bool only_picks(const GroupKernel& kernel) {
  const int64_t length = extent_of(kernel, scan_axis_of(kernel));
  return std::all_of(kernel.exprs.begin(), kernel.exprs.end(), [&](const Expr& expr) {
    return !is_sort(expr) || (expr.operands.size() > 1 && lower::picks_one_by_one(expr.integer, length));
  });
}

// Rows are whole. Exchanges between the warps of a program go through shared memory, but registers, and the time to
// compile what is unrolled for each element of a thread, grow with its elements: eight, or thirty-two where each is
// only compared.
void choose_sorted(const GroupKernel& kernel, const Rows& rows, Parameters& chosen, const DeviceDescription& device) {
  const int64_t width = next_power_of_two(rows.length), each = only_picks(kernel) ? 32 : 8;
  const int64_t columns = rows.along_rows ? 1 : 8;  // a sector's worth beside each other
  int64_t x_block = std::max<int64_t>(columns, 32 * each / width);
  x_block = std::min(x_block, next_power_of_two(rows.count));
  while (x_block > columns && x_block * width > 64 && ceil_divide(rows.count, x_block) < 4 * device.units) x_block /= 2;
  chosen["persistent"] = 1;
  chosen["x_block"] = x_block;
  chosen["num_warps"] = std::clamp<int64_t>(x_block * width / (32 * each), 1, 16);
}

Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  GroupKernel kernel = group.kernel;
  prepare(kernel);
  const Rows rows = rows_of(kernel);
  Parameters chosen;
  if (sorts(kernel)) choose_sorted(kernel, rows, chosen, device);
  else if (multiplies_in_order(kernel, rows)) choose_in_order(rows, chosen);
  else if (rows.along_rows) choose_along_rows(rows, chosen, device);
  else choose_across_rows(kernel, rows, chosen, device);
  return chosen;
}

const ParameterTable& takes() {
  static const ParameterTable table({
      {.name = "num_warps",
       .least = 1,
       .most = kMostWarps,
       .unsaid = 4,
       .powers_of_two = true,
       .tried = {1, 2, 4, 8, 16}},
      {.name = "x_block",
       .least = 1,
       .most = kMostLanes,
       .unsaid = 1,
       .powers_of_two = true,
       .tried = {1, 2, 4, 8, 16, 32, 64, 128, 256}},
      {.name = "r_block",
       .least = 1,
       .most = kMostLanes,
       .unsaid = 1024,
       .powers_of_two = true,
       .tried = {1, 4, 8, 16, 32, 64, 512, 1024, 2048, 4096, 8192}},
      {.name = "persistent", .least = 0, .most = 1, .unsaid = 0, .powers_of_two = false, .tried = {0, 1}},
      {.name = "prefetch", .least = 1, .most = 256, .unsaid = 1, .powers_of_two = true, .tried = {1, 2, 4, 8, 16}},
  });
  return table;
}

std::vector<ParameterRange> space(const LoweredGroup& group, const DeviceDescription&) {
  GroupKernel kernel = group.kernel;
  prepare(kernel);
  const Rows rows = rows_of(kernel);
  const ParameterTable& table = takes();
  if (sorts(kernel)) return {table.range("num_warps"), table.range("x_block", 1, 32)};
  std::vector<ParameterRange> ranges = {table.range("num_warps", 1, 8), table.range("x_block")};
  if (multiplies_in_order(kernel, rows)) return {ranges[0], ranges[1], table.range("prefetch")};
  if (rows.along_rows) ranges.push_back(table.range("r_block", 512, 8192));
  else ranges.push_back(table.range("r_block", 1, 64));
  if (next_power_of_two(rows.length) <= 8192) ranges.push_back(table.range("persistent"));
  return ranges;
}

// Of one prepared kernel, of which parallel axes become one.
lower::KernelSchedule schedule_of(GroupKernel& kernel, const Parameters& parameters, const ParameterTable& table) {
  const int64_t x_block = table.read(parameters, "x_block");
  int parallel = kernel.parallel;
  // Few columns per step of an outer axis waste lanes: walk the parallel axes as one.
  if (parallel > 1 && extent_of(kernel, parallel - 1) < x_block && flatten(kernel, 0, parallel - 1)) parallel = 1;
  lower::KernelSchedule schedule = in_single_points(kernel, table.read(parameters, "num_warps"));
  schedule.cache_hints = true;
  if (parallel > 0)
    schedule.axes[parallel - 1] = in_blocks(kernel, parallel - 1,
                                            std::min(x_block, next_power_of_two(extent_of(kernel, parallel - 1))));
  lower::AxisSchedule& scan = schedule.axes.back();
  const int64_t length = extent_of(kernel.symbols.back());
  if (table.read(parameters, "persistent") != 0 || sorts(kernel)) return schedule;
  scan = in_loop(std::min(table.read(parameters, "r_block"), scan.width));
  // As many blocks as there are: none stands outside the row.
  for (scan.prefetch = table.read(parameters, "prefetch"); ceil_divide(length, scan.width) % scan.prefetch != 0;)
    scan.prefetch /= 2;
  return schedule;
}

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription&) {
  prepare(group.kernel);
  const bool in_order = !sorts(group.kernel) && multiplies_in_order(group.kernel, rows_of(group.kernel));
  lower::KernelSchedule schedule = schedule_of(group.kernel, parameters, takes());
  schedule.axes.back().network = in_order;
  ScheduledGroup result;
  result.tiles.push_back(as_tiles(std::move(group), std::move(schedule)));
  return result;
}

}  // namespace

const Scheduler kScanScheduler{kScan, GroupWork::kElements, is_scan, takes, defaults, space, lower};

}  // namespace kw::triton
