// Reductions and row normalisations on a GPU: rows kept on chip where they fit, walked in blocks where they do not, cut
// into parts where there are too few of them to fill the device.
#include <algorithm>

#include "plan/axes.hpp"
#include "plan/estimate.hpp"
#include "plan/group_kinds.hpp"
#include "plan/embedding.hpp"
#include "plan/group_tiles.hpp"
#include "plan/split.hpp"
#include "targets/triton/cooperative_rows.hpp"
#include "targets/triton/schedulers.hpp"

namespace kw::triton {

using namespace plan;

namespace {

// How a group's rows lie in memory, after ordering and coalescing.
struct Rows {
  int parallel = 0;          // number of parallel axes
  int64_t count = 1;         // points of the parallel axes
  int64_t length = 1;        // points of the reduce axes
  bool along_rows = true;    // the contiguous axis is a reduce axis
  bool full = false;         // stores over the reduce axes
  bool again = false;        // each row is needed more than once: for its results, or for a second reduction
  int kept_loads = 0;        // loads that a reduction needs element by element
  int64_t element_size = 4;  // of the largest load
  int streams = 0;           // accesses along the row whose elements are the row's own
  int broadcast_loads = 0;   // loads along the row that a stretch of neighbouring rows share, but not all rows: scales
                             // of a sample
  bool moments = false;      // folds means and squared deviations
  bool several_passes = false;  // folds more than once, each after the one before: sums of exponentials need the
                                // largest first
  double weight = 0;            // arithmetic on each element that the row is folded from
};

constexpr int64_t kMostParts = 16;  // partial results that each thread of a launch's last program takes

void prepare(GroupKernel& kernel) {
  order_by_stride(kernel);
  coalesce(kernel);
}

int loads_under_reductions(const GroupKernel& kernel) {
  std::vector<bool> folded(kernel.exprs.size(), false);
  int loads = 0;
  for (size_t id = kernel.exprs.size(); id-- > 0;) {
    const auto& expr = kernel.exprs[id];
    if (folded[id] || expr.kind == ExprKind::kReduce)
      for (ExprId part : made_of(kernel, expr)) folded[part] = true;
    if (!folded[id] || !is_load(expr)) continue;
    for (int axis = kernel.parallel; axis < axis_count(kernel); ++axis)
      if (uses_axis(kernel, expr.access, axis)) {
        ++loads;
        break;
      }
  }
  return loads;
}

Rows rows_of(const GroupKernel& kernel) {
  Rows rows;
  rows.parallel = kernel.parallel;
  rows.count = parallel_points(kernel);
  rows.length = reduce_points(kernel);
  rows.full = stores_over_reduce_axes(kernel);
  rows.again = rows.full || !reductions_are_independent(kernel);
  rows.moments = std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) {
    return expr.kind == ExprKind::kReduce && expr.reduce == ReduceOp::kMoments;
  });
  rows.several_passes = rows.again || rows.moments ||
                        std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) {
                          return expr.kind == ExprKind::kReduce && expr.reduce == ReduceOp::kMaxSumExp;
                        });
  bool decided = false;
  for (const auto& one : traffic_of(kernel)) {
    bool reduce = false;
    for (int axis = rows.parallel; axis < axis_count(kernel); ++axis) reduce |= uses_axis(kernel, *one.access, axis);
    if (decided || !reduce || one.is_store) continue;
    for (int axis = 0; axis < axis_count(kernel); ++axis)
      if (stride_along(*one.access, axis) == 1) {
        rows.along_rows = axis >= rows.parallel;
        rows.element_size = one.element_size;
        decided = true;
      }
  }
  if (rows.parallel == 0) rows.along_rows = true;
  for (const auto& one : traffic_of(kernel)) {
    const auto uses_one_of = [&](int first, int last) {
      for (int axis = first; axis < last; ++axis)
        if (uses_axis(kernel, *one.access, axis)) return true;
      return false;
    };
    if (rows.parallel == 0 || !uses_one_of(rows.parallel, axis_count(kernel))) continue;
    if (uses_axis(kernel, *one.access, rows.parallel - 1)) ++rows.streams;
    else if (!one.is_store && uses_one_of(0, rows.parallel - 1)) ++rows.broadcast_loads;
  }
  const auto axes = kernel::dependences(kernel);
  const std::vector<bool> values = values_of(kernel);
  for (size_t id = 0; id < kernel.exprs.size(); ++id)
    if (values[id] && std::any_of(axes[id].begin() + rows.parallel, axes[id].end(), [](bool one) { return one; }))
      rows.weight += weight_of(kernel.exprs[id]);
  rows.kept_loads = loads_under_reductions(kernel);
  return rows;
}

// The longest row that one program keeps in registers: 64 bytes of each loaded tensor for each of up to 1024 threads,
// times two for one tensor.
int64_t longest_kept_row(const Rows& rows) {
  const int64_t tensors = std::max(1, rows.kept_loads);
  return tensors == 1 ? 32768 : tensors == 2 ? 16384 : 8192;
}

int64_t warps_for(int64_t tile) {
  if (tile <= 1024) return 2;
  if (tile <= 2048) return 4;
  if (tile <= 8192) return 8;
  if (tile <= 16384) return 16;
  return 32;
}

// Of rows that are folded in several passes: threads wait for each other at each, the fewer of them the shorter, and
// many small programs fill the time. Measured for rows of 64 to 16,384 elements, of one tensor and of two; 8 warps over
// four rows of 1024 took 1.1 times as long for a softmax, 1.4 times for two.
int64_t warps_for_passes(int64_t tile) { return tile <= 1024 ? 2 : tile <= 4096 ? 4 : tile / 1024; }

int64_t inner_parallel_extent(const GroupKernel& kernel) {
  const int parallel = kernel.parallel;
  return parallel == 0 ? 1 : extent_of(kernel, parallel - 1);
}

// The longest block of which a row is a whole number, but for little: what is computed in padded lanes is computed in
// vain.
int64_t block_without_padding(int64_t length) {
  int64_t block = std::min<int64_t>(1024, next_power_of_two(length));
  while (block > 32 && ceil_divide(length, block) * block * 8 > length * 9) block /= 2;
  return block;
}

// Shortens the blocks of a looped row until a thread has registers for what it keeps of each of its elements: loads,
// and accumulators but for the counts of moments.
void leave_registers(const GroupKernel& kernel, const Rows& rows, Parameters& chosen) {
  constexpr int64_t kRegistersOfUnit = 65536, kMostRegisters = 255, kOther = 16, kLeastBlock = 1024;
  constexpr double kLongFormula = 40;
  int64_t kept = std::max(1, rows.kept_loads);
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const auto& expr = kernel.exprs[id];
    if (expr.kind != ExprKind::kReduce ||
        siblings_of(kernel, static_cast<ExprId>(id)).front() != static_cast<ExprId>(id))
      continue;
    kept += expr.reduce <= ReduceOp::kAll ? 1 : 2;
  }
  if (rows.weight >= kLongFormula) kept += 4;  // on its way
  const int64_t threads = 32 * chosen["num_warps"],
                room = std::min(kMostRegisters, kRegistersOfUnit / threads) - kOther;
  while (chosen["r_block"] > std::max(kLeastBlock, threads) && chosen["r_block"] / threads * kept > room)
    chosen["r_block"] /= 2;
}

// Rows side by side that a program should have so that what it stores fills a sector of memory: more than one where
// results lie across the rows that are read.
int64_t rows_of_a_sector(const GroupKernel& kernel, const Rows& rows) {
  constexpr int64_t kSectorBytes = 32;
  if (!rows.full || rows.parallel == 0) return 1;
  const auto is_whole = [&](const Access& access) {
    for (int axis = rows.parallel; axis < axis_count(kernel); ++axis)
      if (uses_axis(kernel, access, axis)) return true;
    return false;
  };
  for (const auto& one : traffic_of(kernel))
    if (one.is_store && is_whole(*one.access) && stride_along(*one.access, rows.parallel - 1) == 1)
      return std::min<int64_t>(next_power_of_two(inner_parallel_extent(kernel)),
                               std::max<int64_t>(1, kSectorBytes / one.element_size));
  return 1;
}

void choose_along_rows(const GroupKernel& kernel, const Rows& rows, Parameters& chosen,
                       const DeviceDescription& device) {
  const int64_t width = next_power_of_two(rows.length);
  // Arithmetic this heavy takes longer than the memory; below it padded lanes cost nothing.
  if (!rows.again && rows.weight >= 20 && width <= 4096 && width * 4 > rows.length * 5 && rows.length > 64) {
    chosen["persistent"] = 0;
    chosen["r_block"] = block_without_padding(rows.length);
    chosen["x_block"] = std::min(std::max<int64_t>(1, 4096 / chosen["r_block"]), next_power_of_two(rows.count));
    while (chosen["x_block"] > 1 && ceil_divide(rows.count, chosen["x_block"]) < 4 * device.units)
      chosen["x_block"] /= 2;
    chosen["num_warps"] = warps_for(chosen["r_block"] * chosen["x_block"]);
    return;
  }
  if (width <= (rows.again ? longest_kept_row(rows) : 4096)) {
    chosen["persistent"] = 1;
    chosen["r_block"] = width;
    // A tile of several rows reads what they share once. What all rows share stays in the first cache anyway.
    const bool broadcasts = rows.broadcast_loads * 4 > rows.streams * std::max<int64_t>(1, 4096 / width);
    const bool passes = rows.several_passes && !broadcasts;
    int64_t x_block = std::max<int64_t>(1, (broadcasts ? 8192 : passes ? 1024 : 4096) / width);
    x_block = std::min(x_block, next_power_of_two(rows.count));
    while (x_block > 1 && ceil_divide(rows.count, x_block) < 4 * device.units) x_block /= 2;
    if (const int64_t sector = rows_of_a_sector(kernel, rows); sector * width <= 8192)
      x_block = std::max(x_block, sector);
    chosen["x_block"] = x_block;
    chosen["num_warps"] = passes ? warps_for_passes(width * x_block)
                                 : std::min<int64_t>(warps_for(width * x_block), width >= 8192 ? 16 : 8);
    if (width >= 32768) chosen["num_warps"] = 32;
    return;
  }
  chosen["persistent"] = 0;
  chosen["x_block"] = 1;
  chosen["r_block"] = 8192;
  chosen["num_warps"] = 16;
  // Moments are combined in three places a pass: 0.20 ms instead of 0.24 for those of channels of 401,408 elements.
  if (!rows.again && rows.moments && rows.length >= 8 * 16384) chosen["r_block"] = 16384;
  // A row that is read twice comes out of the cache the second time when the rows in flight fit: one program per
  // multiprocessor.
  if (rows.again && rows.length * rows.element_size * device.units <= device.cache_bytes * 4 / 5) {
    chosen["r_block"] = 16384;
    chosen["num_warps"] = 32;
  }
  leave_registers(kernel, rows, chosen);
}

// Values that all reductions together keep for each lane until the end: argmax keeps the place too, moments a mean and
// a count.
int64_t accumulators_of(const GroupKernel& kernel) {
  int64_t count = 0;
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const auto& expr = kernel.exprs[id];
    if (expr.kind != ExprKind::kReduce ||
        siblings_of(kernel, static_cast<ExprId>(id)).front() != static_cast<ExprId>(id))
      continue;
    count += expr.reduce <= ReduceOp::kAll ? 1 : expr.reduce == ReduceOp::kMoments ? 3 : 2;
  }
  return count;
}

bool finds_places(const GroupKernel& kernel) {
  return std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) {
    return expr.kind == ExprKind::kReduce && (expr.reduce == ReduceOp::kArgMax || expr.reduce == ReduceOp::kArgMin);
  });
}

void choose_across_rows(const GroupKernel& kernel, const Rows& rows, Parameters& chosen,
                        const DeviceDescription& device) {
  const int64_t inner = inner_parallel_extent(kernel);
  const int64_t width = next_power_of_two(rows.length);
  const int64_t tile = rows.full ? 8192 : 4096;
  // 32 columns of 4 bytes fill a 128-byte line.
  const int64_t least = std::min<int64_t>(std::max<int64_t>(32, 128 / rows.element_size), next_power_of_two(inner));
  if (width * least <= (rows.full ? 32768 : 4096)) {
    chosen["persistent"] = 1;
    chosen["r_block"] = width;
    chosen["x_block"] = std::clamp<int64_t>(tile / width, least, std::min<int64_t>(512, next_power_of_two(inner)));
  } else {
    chosen["persistent"] = 0;
    // 128 columns by 128 rows, added elementwise and folded at the end: 0.7535 ms where 32 rows take 0.78 (the floor is
    // 0.749).
    chosen["x_block"] = std::min<int64_t>(128, next_power_of_two(inner));
    // 128 elements a thread and as many partial sums fill its registers: with a second load of that size they no longer
    // fit (400 bytes spilled).
    const int64_t points = rows.full || accumulators_of(kernel) > 1 ? tile : rows.kept_loads > 1 ? 8192 : 16384;
    chosen["r_block"] = std::min<int64_t>(width, std::max<int64_t>(8, points / chosen["x_block"]));
    // A program that loops only a few times hardly overlaps its loads with anything.
    if (!rows.full)
      chosen["r_block"] = std::max<int64_t>(std::min<int64_t>(chosen["r_block"], 16),
                                            std::min(chosen["r_block"], width / 8));
  }
  while (chosen["x_block"] > least && rows.count / chosen["x_block"] < 2 * device.units) {
    chosen["x_block"] /= 2;
    if (!chosen["persistent"]) chosen["r_block"] = std::min<int64_t>(width, chosen["r_block"] * 2);
  }
  // Up to 32 elements a thread, or 64 where there is much to compute: with 8 warps a minimum over 24 channels took 1.17
  // times as long, a softmax over 64 of them 1.05 times; an RMS norm over 64 took 0.99.
  const int64_t kept = chosen["x_block"] * chosen["r_block"] * std::max(1, rows.kept_loads);
  chosen["num_warps"] = chosen["persistent"] && kept > (rows.weight >= 10 ? 8192 : 4096)
                            ? std::max<int64_t>(4, warps_for(chosen["x_block"] * chosen["r_block"]))
                            : 4;
  const auto registers = [&] {
    return chosen["x_block"] * chosen["r_block"] / (32 * chosen["num_warps"]) *
           (accumulators_of(kernel) + std::max(0, rows.kept_loads - 1));
  };
  while (!chosen["persistent"] && chosen["num_warps"] < 16 && registers() > 192) chosen["num_warps"] *= 2;
  // Places are compared beside values: eight elements a thread took 0.96 of the time of 32, for 4096 rows on an H200.
  if (!chosen["persistent"] && finds_places(kernel)) chosen["num_warps"] = 16;
}

// Parts that a row is cut into so that every multiprocessor has several programs; 1 where the rows are enough or short.
int64_t wanted_parts(const Rows& rows, int64_t x_block, const DeviceDescription& device) {
  const int64_t programs = ceil_divide(rows.count, x_block);
  const int64_t least_part = rows.along_rows ? 8192 : 128;
  // Two programs of 16 warps fit a multiprocessor: 256 on 132 of them are one wave, 7 times as many are 6.8 shorter
  // ones (0.217 instead of 0.193 ms).
  if (programs >= 2 * device.units - (rows.along_rows ? device.units / 8 : 0) || rows.length < 4 * least_part) return 1;
  return std::clamp<int64_t>(ceil_divide(12 * device.units, programs), 2, rows.length / least_part);
}

// Windows alone leave something of a row out of folds for which nothing stands.
bool is_reduction_of_rows(const LoweredGroup& group) { return is_reduction(group) && can_embed(group.kernel); }
bool is_normalisation_of_rows(const LoweredGroup& group) { return is_normalisation(group) && can_embed(group.kernel); }

Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  GroupKernel kernel = group.kernel;
  prepare(kernel);
  const Rows rows = rows_of(kernel);
  Parameters chosen;
  if (rows.along_rows) choose_along_rows(kernel, rows, chosen, device);
  else choose_across_rows(kernel, rows, chosen, device);
  // A row that one program cannot keep and that is needed again.
  if (rows.along_rows && rows.again && !chosen["persistent"]) {
    if (const int64_t block = choose_cooperative_block(kernel, rows.kept_loads, device); block > 0) {
      chosen["cooperative_block"] = block;
      return chosen;
    }
  }
  const SplitChoice split = choose_split(kernel, wanted_parts(rows, chosen["x_block"], device));
  chosen["split"] = split.axis < 0 ? 1 : split.parts;
  return chosen;
}

const ParameterTable& takes() {
  static const ParameterTable table({
      {.name = "num_warps",
       .least = 1,
       .most = kMostWarps,
       .unsaid = 4,
       .powers_of_two = true,
       .tried = {2, 4, 8, 16, 32}},
      {.name = "x_block",
       .least = 1,
       .most = kMostLanes,
       .unsaid = 1,
       .powers_of_two = true,
       .tried = {1, 2, 4, 8, 16, 32, 64, 128}},
      {.name = "persistent", .least = 0, .most = 1, .unsaid = 0, .powers_of_two = false, .tried = {0, 1}},
      {.name = "cooperative_block",
       .least = 0,
       .most = 65536,
       .unsaid = 0,
       .powers_of_two = true,
       .tried = {0, 1024, 2048, 4096, 8192}},
      {.name = "r_block",
       .least = 1,
       .most = kMostLanes,
       .unsaid = 1024,
       .powers_of_two = true,
       .tried = {512, 1024, 2048, 4096, 8192, 16384}},
      {.name = "split",
       .least = 1,
       .most = 65536,
       .unsaid = 1,
       .powers_of_two = false,
       .tried = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}},
      {.name = "last_block", .least = 0, .most = 1, .unsaid = 1, .powers_of_two = false, .tried = {0, 1}},
  });
  return table;
}

std::vector<ParameterRange> space(const LoweredGroup& group, const DeviceDescription& device) {
  const ParameterTable& table = takes();
  GroupKernel kernel = group.kernel;
  prepare(kernel);
  const Rows rows = rows_of(kernel);
  std::vector<ParameterRange> ranges = {table.range("num_warps"), table.range("x_block")};
  if (next_power_of_two(rows.length) <= 65536) ranges.push_back(table.range("persistent"));
  if (rows.along_rows && rows.again && rows.length > 8192) ranges.push_back(table.range("cooperative_block"));
  ranges.push_back(table.range("r_block"));
  ranges.push_back(table.range("split"));
  if (table.read(defaults(group, device), "split") > 1) ranges.push_back(table.range("last_block"));
  return ranges;
}

// Of one prepared kernel, of which axes may become one.
lower::KernelSchedule schedule_of(GroupKernel& kernel, const Parameters& parameters, const ParameterTable& table) {
  const Rows rows = rows_of(kernel);
  int parallel = rows.parallel;
  const int64_t x_block = table.read(parameters, "x_block");
  const bool persistent = table.read(parameters, "persistent") != 0;
  // Few columns per step of an outer axis waste lanes: walk the parallel axes as one.
  if (parallel > 1 && extent_of(kernel, parallel - 1) < x_block) {
    const int before = axis_count(kernel);
    if (flatten(kernel, 0, parallel - 1)) parallel -= before - axis_count(kernel);
  }
  const int64_t inner_length = extent_of(kernel.symbols.back());
  const bool short_inner = axis_count(kernel) - parallel > 1 && inner_length < table.read(parameters, "r_block");
  if (persistent || short_inner) flatten(kernel, parallel, axis_count(kernel) - 1);
  lower::KernelSchedule schedule = in_single_points(kernel, table.read(parameters, "num_warps"));
  schedule.cache_hints = true;
  const int axes = axis_count(kernel);
  for (int axis = 0; axis < axes; ++axis) {
    const bool innermost = axis + 1 == (axis < parallel ? parallel : axes);
    const int64_t width = next_power_of_two(extent_of(kernel, axis));
    if (!is_serial(kernel, axis)) {
      if (innermost) schedule.axes[axis] = in_blocks(kernel, axis, std::min(x_block, width));
      continue;
    }
    if (persistent && axes - parallel == 1 && width <= kMostLanes) continue;
    schedule.axes[axis] = in_loop(innermost ? std::min(table.read(parameters, "r_block"), width) : 1);
  }
  const auto is_too_large = [&](int64_t width) { return width > 1 && width * schedule.axes.back().width > kMostLanes; };
  while (parallel > 0 && is_too_large(schedule.axes[parallel - 1].width))
    schedule.axes[parallel - 1] = in_blocks(kernel, parallel - 1, schedule.axes[parallel - 1].width / 2);
  return schedule;
}

// The parallel axis along which a long load (a weight along the row) is the same and another is not; −1 when there is
// none.
int row_axis_sharing_loads(const GroupKernel& kernel, int inner) {
  const auto traffic = traffic_of(kernel);
  for (int axis = inner - 1; axis >= 0; --axis) {
    bool shared = false, own = false;
    for (const auto& one : traffic)
      if (!one.is_store && uses_axis(kernel, *one.access, inner))
        (uses_axis(kernel, *one.access, axis) ? own : shared) = true;
    if (shared && own && extent_of(kernel, axis) > 1) return axis;
  }
  return -1;
}

// Full-size results from the parts' results: each program combines its row's few parts, then walks a stretch of the
// row.
lower::KernelSchedule schedule_of_full_finish(const GroupKernel& kernel, const DeviceDescription& device) {
  const int inner = axis_count(kernel) - 2;
  lower::KernelSchedule schedule = in_single_points(kernel, 4);
  schedule.cache_hints = true;
  int64_t wanted = 4096;
  while (wanted > 1024 && ceil_divide(parallel_points(kernel), wanted) < 4 * device.units) wanted /= 2;
  // Weights along the row are read once for all rows of a tile instead of once a row: 0.145 instead of 0.249 ms on 16
  // rows of 4 M elements.
  if (const int rows = row_axis_sharing_loads(kernel, inner); rows >= 0) {
    const int64_t height = std::min<int64_t>(16, next_power_of_two(extent_of(kernel, rows)));
    schedule.axes[rows] = in_blocks(kernel, rows, height);
    wanted = std::max<int64_t>(256, wanted / height);
  }
  const int64_t width = std::min<int64_t>(wanted, next_power_of_two(extent_of(kernel, inner)));
  schedule.axes[inner] = in_blocks(kernel, inner, width);
  if (width >= 2048) schedule.warps = 8;
  return schedule;
}

lower::KernelSchedule schedule_of_row_finish(const GroupKernel& kernel) {
  const int parts = axis_count(kernel) - 1;
  const int64_t width = next_power_of_two(extent_of(kernel, parts));
  lower::KernelSchedule schedule = in_single_points(kernel, width >= 2048 ? 8 : width >= 512 ? 4 : 1);
  schedule.cache_hints = true;
  if (parts > 0)
    schedule.axes[parts - 1] = in_blocks(
        kernel, parts - 1,
        std::min<int64_t>(std::max<int64_t>(1, 1024 / width), next_power_of_two(extent_of(kernel, parts - 1))));
  return schedule;
}

// Can the last program of a launch with so many warps combine all rows' parts by itself, in registers?
bool reduce_in_last_block(GroupKernel& finish, lower::KernelSchedule& schedule, int warps) {
  const int parts = axis_count(finish) - 1;
  if (parts > 1) {
    if (!flatten(finish, 0, parts - 1)) return false;
    schedule.axes = {in_blocks(finish, 0, 1), schedule.axes.back()};
  }
  const int64_t rows = finish.symbols.size() > 1 ? next_power_of_two(extent_of(finish.symbols.front())) : 1;
  if (rows * schedule.axes.back().width > kMostParts * 32 * warps) return false;
  if (finish.symbols.size() > 1) schedule.axes.front() = in_blocks(finish, 0, rows);
  return true;
}

// The kernels of rows that are cut into parts, in order, and what a pointwise one makes of their statistics.
struct Parts {
  struct Part {
    LoweredGroup group;
    lower::KernelSchedule schedule;
    bool by_last = false;
  };
  std::vector<Part> kernels;
  ScheduledGroup behind;
};

void schedule(Parts parts, ScheduledGroup& result) {
  for (Parts::Part& part : parts.kernels) {
    result.tiles.push_back(as_tiles(std::move(part.group), std::move(part.schedule)));
    result.tiles.back().by_last = part.by_last;
  }
  std::move(parts.behind.tiles.begin(), parts.behind.tiles.end(), std::back_inserter(result.tiles));
}

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device) {
  const ParameterTable& table = takes();
  prepare(group.kernel);
  ScheduledGroup result;
  if (const int64_t block = table.read(parameters, "cooperative_block"); block > 0) {
    if (auto spread = spread_rows(group, block, device, result.scratch)) {
      result.tiles.push_back(std::move(*spread));
      return result;
    }
  }
  if (const int64_t parts = table.read(parameters, "split"); parts > 1) {
    const SplitChoice choice = choose_split(group.kernel, parts);
    // Many parts are combined once for all programs of the row.
    const bool through_statistics = !rows_of(group.kernel).along_rows ||
                                    extent_of(group.kernel.symbols.back()) < 1024 || choice.parts > 256;
    auto kernels = choice.axis < 0 ? std::nullopt : split_reduction(group, choice, through_statistics);
    if (kernels) {
      result.scratch = std::move(kernels->scratch);
      prepare(kernels->partial.kernel);
      Parameters partial = parameters;
      const Rows rows = rows_of(kernels->partial.kernel);
      if (rows.along_rows) choose_along_rows(kernels->partial.kernel, rows, partial, device);
      else choose_across_rows(kernels->partial.kernel, rows, partial, device);
      lower::KernelSchedule first = schedule_of(kernels->partial.kernel, partial, table);
      const int warps = first.warps;
      Parts made;
      made.kernels.push_back({std::move(kernels->partial), std::move(first)});
      for (auto& finish : kernels->finish) {
        if (finish.kernel.parallel == axis_count(finish.kernel)) {
          const Parameters pointwise = kPointwiseScheduler.defaults(finish, device);
          made.behind = kPointwiseScheduler.lower(std::move(finish), pointwise, device);
          continue;
        }
        prepare(finish.kernel);
        const bool full = parallel_points(finish.kernel) > rows_of(group.kernel).count;
        lower::KernelSchedule schedule = full ? schedule_of_full_finish(finish.kernel, device)
                                              : schedule_of_row_finish(finish.kernel);
        const bool by_last = !full && made.kernels.size() == 1 && table.read(parameters, "last_block") != 0 &&
                             reduce_in_last_block(finish.kernel, schedule, warps);
        made.kernels.push_back({std::move(finish), std::move(schedule), by_last});
      }
      schedule(std::move(made), result);
      return result;
    }
  }
  lower::KernelSchedule schedule = schedule_of(group.kernel, parameters, table);
  result.tiles.push_back(as_tiles(std::move(group), std::move(schedule)));
  return result;
}

}  // namespace

const Scheduler kReductionScheduler{kReduction, GroupWork::kElements, is_reduction_of_rows, takes, defaults, space,
                                    lower};
const Scheduler kNormalisationScheduler{
    kNormalisation, GroupWork::kElements, is_normalisation_of_rows, takes, defaults, space, lower};

}  // namespace kw::triton
