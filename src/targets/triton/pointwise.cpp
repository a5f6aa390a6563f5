// Pointwise groups: flat where every access is, row by row for broadcasts, square tiles where one operand is
// transposed, tiles of whole rows where rows are looked up, or where places within a row take divisions.
#include <algorithm>

#include "plan/axes.hpp"
#include "plan/group_kinds.hpp"
#include "plan/group_tiles.hpp"
#include "targets/triton/schedulers.hpp"

namespace kw::triton {

using namespace plan;

namespace {

// Layouts of the tile over the coalesced axes.
enum Layout : int64_t { kFlat = 0, kRows = 1, kTransposed = 2, kWholeRows = 3, kShortAxes = 4 };

void prepare(GroupKernel& kernel) {
  order_by_stride(kernel);
  coalesce(kernel);
}

// The axis along which a large access is contiguous that is not contiguous along the innermost one; −1 when there is
// none.
int transposed_axis(const GroupKernel& kernel) {
  const int last = axis_count(kernel) - 1;
  const auto traffic = traffic_of(kernel);
  for (const auto& one : traffic) {
    if (one.bytes * 4 < traffic.front().bytes || stride_along(*one.access, last) == 1 ||
        !uses_axis(kernel, *one.access, last))
      continue;
    for (int axis = 0; axis < last; ++axis)
      if (stride_along(*one.access, axis) == 1 && extent_of(kernel, axis) >= 8) return axis;
  }
  return -1;
}

// Are rows along the innermost axis read or written at places that data decide, the same all along it?
bool looks_up_rows(const GroupKernel& kernel) {
  const int last = axis_count(kernel) - 1;
  const auto axes = kernel::dependences(kernel);
  const auto varies = [&](ExprId id) { return id != kNoExpr && axes[id][last]; };
  const auto is_row = [&](const Access& access) {
    return lookup_of(access) != kNoExpr && stride_along(access, last) == 1 && !varies(lookup_of(access)) &&
           !varies(parts_of_mask(kernel, access.mask).condition);
  };
  return std::any_of(kernel.stores.begin(), kernel.stores.end(),
                     [&](const Store& store) { return is_row(store.access); }) ||
         std::any_of(kernel.exprs.begin(), kernel.exprs.end(),
                     [&](const Expr& expr) { return is_load(expr) && is_row(expr.access); });
}

// The widest block of which a row is a whole number, but for a seventh of it; 0 where there is none worth a program.
int64_t block_of_row(int64_t length) {
  for (int64_t block = 1024; block >= 128; block /= 2)
    if (ceil_divide(length, block) * block * 7 <= length * 8) return block;
  return 0;
}

// The first of the inner axes that make a row, for a kernel whose innermost axis is short and no power of two (three
// channels of a pixel): walked flat, every element divides its number to find its place; in a tile of several rows that
// is done once for all of them. −1: nothing to gain.
int first_axis_of_row(const GroupKernel& kernel) {
  constexpr int64_t kShort = 16, kLongestRow = 8192, kLeastRows = 64;
  if (kernel.symbols.size() < 3) return -1;
  const int64_t inner = extent_of(kernel.symbols.back());
  if (scatters(kernel) ||
      std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) { return looks_up(expr); }) ||
      inner >= kShort || next_power_of_two(inner) == inner)
    return -1;
  int64_t length = inner, rows = parallel_points(kernel) / inner;
  for (int first = axis_count(kernel) - 2; first > 0; --first) {
    length *= extent_of(kernel, first);
    rows /= std::max<int64_t>(1, extent_of(kernel, first));
    if (length > kLongestRow || rows < kLeastRows) return -1;
    if (length % 4 == 0 && block_of_row(length) > 0) return first;
  }
  return -1;
}

int64_t largest_element(const GroupKernel& kernel) {
  int64_t size = 1;
  for (const auto& buffer : kernel.buffers) size = std::max(size, size_of(buffer.dtype));
  return size;
}

// Enough elements for a 16-byte access or two per thread, few enough that every multiprocessor has work.
int64_t flat_block(const GroupKernel& kernel, int64_t points, const DeviceDescription& device) {
  int64_t block = largest_element(kernel) <= 2 ? 2048 : 1024;
  while (block > 128 && ceil_divide(points, block) < 2 * device.units) block /= 2;
  return block;
}

Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  GroupKernel kernel = group.kernel;
  prepare(kernel);
  const int64_t points = parallel_points(kernel);
  const int64_t inner = kernel.symbols.empty() ? 1 : extent_of(kernel.symbols.back());
  Parameters chosen = {{"layout", kFlat}, {"block", flat_block(kernel, points, device)}, {"num_warps", 4}};
  if (kernel.symbols.size() > 1) {
    if (first_axis_of_row(kernel) > 0) {
      chosen["layout"] = kShortAxes;
      chosen["block"] = 2048;
    } else if (transposed_axis(kernel) >= 0 && inner >= 8) {
      // A tile of 32 by 32 reads and writes full 128-byte lines both ways.
      chosen["layout"] = kTransposed;
      chosen["block"] = 32;
    } else {
      // Rows that keep 16-byte alignment and fill their blocks; anything else is walked flat, divisions and all, to
      // keep the accesses wide.
      const int64_t lanes = 16 / std::min<int64_t>(16, largest_element(kernel));
      int64_t block = std::min<int64_t>(1024, next_power_of_two(inner));
      const double waste = static_cast<double>(ceil_divide(inner, block) * block) / static_cast<double>(inner);
      if (inner >= 512 && inner % lanes == 0 && waste < 1.3) {
        chosen["layout"] = kRows;
        chosen["block"] = block;
      } else if (inner >= 8 && inner % lanes == 0 && waste < 1.3 && looks_up_rows(kernel)) {
        chosen["layout"] = kWholeRows;  // each place is loaded once, and the rows in wide accesses, which flat lanes
                                        // that each have a place would not be
      }
    }
  }
  if (chosen["layout"] != kTransposed && chosen["layout"] != kShortAxes)
    chosen["num_warps"] = std::clamp<int64_t>(chosen["block"] / 256, 1, 8);
  return chosen;
}

const ParameterTable& takes() {
  static const ParameterTable table({
      {.name = "block",
       .least = 1,
       .most = kMostLanes,
       .unsaid = 1024,
       .powers_of_two = true,
       .tried = {256, 512, 1024, 2048, 4096}},
      {.name = "num_warps", .least = 1, .most = kMostWarps, .unsaid = 4, .powers_of_two = true, .tried = {2, 4, 8}},
      {.name = "layout",
       .least = kFlat,
       .most = kShortAxes,
       .unsaid = kFlat,
       .powers_of_two = false,
       .tried = {kFlat, kRows, kTransposed, kWholeRows, kShortAxes}},
  });
  return table;
}

std::vector<ParameterRange> space(const LoweredGroup& group, const DeviceDescription&) {
  GroupKernel kernel = group.kernel;
  prepare(kernel);
  std::vector<ParameterRange> ranges = {takes().range("block"), takes().range("num_warps")};
  if (kernel.symbols.size() > 1) {
    std::vector<int64_t> layouts = {kFlat, kRows};
    if (transposed_axis(kernel) >= 0) layouts.push_back(kTransposed);
    if (looks_up_rows(kernel)) layouts.push_back(kWholeRows);
    if (first_axis_of_row(kernel) > 0) layouts.push_back(kShortAxes);
    ranges.push_back({"layout", std::move(layouts), kFlat});
  }
  return ranges;
}

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription&) {
  const ParameterTable& table = takes();
  GroupKernel& kernel = group.kernel;
  prepare(kernel);
  int64_t layout = table.read(parameters, "layout");
  const int64_t block = table.read(parameters, "block");
  const int transposed = layout == kTransposed ? transposed_axis(kernel) : -1;
  if (layout == kFlat && kernel.symbols.size() > 1 && !flatten(kernel, 0, axis_count(kernel) - 1)) layout = kRows;
  if (const int first = layout == kShortAxes ? first_axis_of_row(kernel) : -1; first > 0) {
    const int before = axis_count(kernel);
    if (flatten(kernel, first, before - 1) && kernel.symbols.size() == static_cast<size_t>(first) + 1)
      flatten(kernel, 0, first - 1);
  }
  lower::KernelSchedule schedule = in_single_points(kernel, table.read(parameters, "num_warps"));
  const auto take = [&](size_t axis, int64_t width) { schedule.axes[axis] = in_blocks(kernel, axis, width); };
  if (!kernel.symbols.empty()) {
    const size_t inner = kernel.symbols.size() - 1;
    const int64_t extent = extent_of(kernel, inner);
    if (transposed >= 0) {
      for (const size_t axis : {inner, static_cast<size_t>(transposed)})
        take(axis, std::min(std::min<int64_t>(block, 64), next_power_of_two(extent_of(kernel, axis))));
    } else {
      int64_t width = std::min<int64_t>(block, std::max<int64_t>(next_power_of_two(extent), 1));
      if (const int64_t row = block_of_row(extent); layout == kShortAxes && row > 0) width = std::min(width, row);
      take(inner, width);
      if ((layout == kWholeRows || layout == kShortAxes) && inner > 0)
        take(inner - 1, std::clamp<int64_t>(block / width, 1, next_power_of_two(extent_of(kernel, inner - 1))));
    }
  }
  ScheduledGroup result;
  result.tiles.push_back(as_tiles(std::move(group), std::move(schedule)));
  return result;
}

}  // namespace

const Scheduler kPointwiseScheduler{kPointwise, GroupWork::kElements, is_pointwise, takes, defaults, space, lower};

}  // namespace kw::triton
