// Sliding windows on a GPU. Small ones are unrolled, over several neighbouring results: what their windows share is
// read once and stays in registers, and elements that lie side by side are read and written together. Large windows are
// looped over; those that lie far apart are read along their rows instead.
#include <algorithm>
#include <numeric>
#include <set>

#include "plan/axes.hpp"
#include "plan/group_kinds.hpp"
#include "plan/group_tiles.hpp"
#include "targets/triton/schedulers.hpp"
#include "plan/unrolled_reductions.hpp"

namespace kw::triton {

using namespace plan;

namespace {

constexpr int64_t kMostOffsets = 128;         // offsets of a window that is unrolled
constexpr int64_t kMostLoads = 256;           // of a program's lane, where several results are unrolled
constexpr int64_t kMostUnrolledLoads = 1024;  // unrolled loads at the most, whatever a schedule asks for: a
                                              // source that still compiles in seconds
constexpr int64_t kFewOffsets = 16;  // windows of more gain by many rows what they lose by reading single elements
constexpr double kManyLoads = 64;    // of a lane: a program of two warps then has more of its lines in the first cache
constexpr double kLeastWork = 1024;  // loads of all lanes of a program
constexpr int64_t kLongestSegment = 1024;  // of a window, read at once
constexpr int64_t kVector = 4;             // elements that one instruction reads
constexpr int64_t kFarApart = 5;  // windows this many elements apart use a fifth of each line that a strided load
                                  // touches

void prepare(GroupKernel& kernel) {
  order_by_stride(kernel);
  coalesce(kernel);
}

// The load that moves the most of those that windows share; null where there is none.
const Access* windowed_load(const GroupKernel& kernel, const std::vector<Traffic>& traffic) {
  for (const Traffic& one : traffic) {
    if (one.is_store) continue;
    for (int axis = kernel.parallel; axis < axis_count(kernel); ++axis)
      if (uses_axis(kernel, *one.access, axis)) return one.access;
  }
  return nullptr;
}

// How many elements lie between the starts of neighbouring windows; those of uneven sizes start about a window's length
// apart.
int64_t apart(const GroupKernel& kernel, const Access& load, int axis) {
  const int64_t stride = std::abs(stride_along(load, axis));
  return stride == 0 && lookup_of(load) != kNoExpr ? extent_of(kernel.symbols.back()) : stride;
}

// Of the elements that `results` windows side by side along `axis` read at the offsets of the reduce axis `offset`: how
// many differ.
int64_t distinct_reads(const GroupKernel& kernel, const Access& load, int axis, int offset, int64_t results) {
  std::set<int64_t> distinct;
  for (int64_t result = 0; result < results; ++result)
    for (int64_t at = 0; at < extent_of(kernel, offset); ++at)
      distinct.insert(result * stride_along(load, axis) + at * stride_along(load, offset));
  return static_cast<int64_t>(distinct.size());
}

// How many results side by side make lines of whole vectors of what a window reads: 1 where rows do not start at a
// multiple of a vector, or where the windows leave gaps.
int64_t side_by_side(const GroupKernel& kernel, const Access& load, int inner) {
  const int64_t stride = std::abs(stride_along(load, inner));
  if (stride == 0 || stride > kVector || (stride > 1 && reduce_points(kernel) > kFewOffsets)) return 1;
  for (const kernel::Digit& digit : kernel::digits_of(index_of(load)))
    if (digit.axis < inner && digit.coefficient % kVector != 0) return 1;
  const int64_t results = kVector / std::gcd(kVector, stride);
  for (int offset = kernel.parallel; offset < axis_count(kernel); ++offset) {
    const int64_t step = std::abs(stride_along(load, offset)), count = extent_of(kernel, offset);
    if (step == 0 || step >= extent_of(kernel, inner)) continue;  // an offset along another axis
    const int64_t span = (results - 1) * stride + (count - 1) * step + 1;
    if (distinct_reads(kernel, load, inner, offset, results) * 5 < span * 4) return 1;
  }
  return extent_of(kernel, inner) >= 8 * results ? results : 1;
}

// Windows side by side along a parallel axis, and the part of their elements that each has for itself.
struct Overlap {
  int axis = -1, offset = -1;  // −1: none
  double own = 1.0;            // of long rows of windows

  // By how much what a program reads grows with its results.
  double growth(const GroupKernel& kernel, const Access& load, int64_t results) const {
    if (offset < 0) return static_cast<double>(results);
    return static_cast<double>(distinct_reads(kernel, load, axis, offset, results)) /
           static_cast<double>(extent_of(kernel, offset));
  }
  // Results of a program: eight, where windows share half and more or are large; two, where small ones share less.
  int64_t results(const GroupKernel& kernel, const Access& load) const {
    const int64_t wanted = own <= 0.55 || reduce_points(kernel) > kFewOffsets ? 8 : 2;
    if (offset < 0 || growth(kernel, load, wanted) > 0.85 * static_cast<double>(wanted)) return 1;
    return std::min<int64_t>(wanted, floor_power_of_two(extent_of(kernel, axis)));
  }
};

Overlap overlap_along(const GroupKernel& kernel, const Access& load, int axis) {
  constexpr int64_t kMany = 32;
  Overlap best;
  if (axis < 0) return best;
  for (int offset = kernel.parallel; offset < axis_count(kernel); ++offset) {
    if (stride_along(load, offset) == 0 || stride_along(load, axis) == 0) continue;
    const double own = static_cast<double>(distinct_reads(kernel, load, axis, offset, kMany)) /
                       static_cast<double>(kMany * extent_of(kernel, offset));
    if (own < best.own) best = {axis, offset, own};
  }
  return best;
}

// The largest block that wastes little: 186 windows are 3 blocks of 64 rather than one of 256.
int64_t block_for(int64_t extent, int64_t most) {
  int64_t best = std::min(most, next_power_of_two(extent));
  const auto padded = [&](int64_t block) { return ceil_divide(extent, block) * block; };
  for (int64_t block = best / 2; block >= 32; block /= 2)
    if (padded(block) * 10 < padded(best) * 9) best = block;
  return best;
}

Parameters defaults_of_unrolled(const GroupKernel& kernel, const Access& load, const DeviceDescription& device) {
  const int inner = kernel.parallel - 1;
  const int64_t columns = side_by_side(kernel, load, inner);
  const Overlap along_rows = overlap_along(kernel, load, inner - 1),
                along_slices = overlap_along(kernel, load, inner - 2);
  int64_t rows = along_rows.results(kernel, load),
          slices = rows > 1 ? std::min<int64_t>(2, along_slices.results(kernel, load)) : 1;
  // Loads of one lane; every vector of them is one.
  const auto loads = [&] {
    const double apart = static_cast<double>(reduce_points(kernel)) *
                         (columns > 1 ? static_cast<double>(columns) / 2 : 1);
    return apart * along_rows.growth(kernel, load, rows) * along_slices.growth(kernel, load, slices);
  };
  const auto too_much = [&] {
    return loads() > kMostLoads || parallel_points(kernel) / (columns * rows * slices * 128) < 4 * device.units;
  };
  while (slices > 1 && too_much()) slices /= 2;
  while (rows > 1 && too_much()) rows /= 2;
  const int64_t lanes = ceil_divide(extent_of(kernel, inner), columns),
                height = inner > 0 ? ceil_divide(extent_of(kernel, inner - 1), rows) : 1;
  const bool far_apart = apart(kernel, load, inner) >= kFarApart;
  int64_t tile = far_apart              ? 32
                 : columns > 1          ? 128
                 : loads() > kManyLoads ? 64
                                        : 256;  // one warp has more of the lines that it comes back to in the cache
  while (tile > 32 && ceil_divide(parallel_points(kernel), columns * rows * slices * tile) < 2 * device.units)
    tile /= 2;
  Parameters chosen = {{"segments", 0}, {"columns", columns}, {"rows", rows}, {"slices", slices}};
  chosen["x_block"] = block_for(lanes, tile);
  // Short rows: several of them, so that a program is worth its start, but no more lines than the first cache keeps.
  int64_t lanes_together = chosen["x_block"];
  const auto is_small = [&] {
    return lanes_together < 64 || static_cast<double>(lanes_together) * loads() < kLeastWork;
  };
  while (lanes_together < tile && is_small() && lanes_together / chosen["x_block"] < next_power_of_two(height))
    lanes_together *= 2;
  chosen["y_block"] = lanes_together / chosen["x_block"];
  chosen["num_warps"] = std::clamp<int64_t>(lanes_together / (lanes_together > 128 ? 64 : 32), 1, 8);
  return chosen;
}

Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  GroupKernel kernel = group.kernel;
  prepare(kernel);
  const int inner = kernel.parallel - 1;
  if (inner < 0)
    return {{"segments", 1}, {"columns", 1}, {"rows", 1},     {"slices", 1},
            {"x_block", 1},  {"y_block", 1}, {"num_warps", 4}};
  const auto traffic = traffic_of(kernel);
  const Access* load = windowed_load(kernel, traffic);
  const int64_t width = extent_of(kernel, inner), height = inner > 0 ? extent_of(kernel, inner - 1) : 1;
  const bool few = width < 8 && load && extent_of(kernel.symbols.back()) >= kFarApart;
  if (load && reduce_points(kernel) <= kMostOffsets && !few) return defaults_of_unrolled(kernel, *load, device);
  const int64_t offsets = load ? next_power_of_two(extent_of(kernel.symbols.back())) : 1;
  const bool segments = load && extent_of(kernel.symbols.back()) >= kFarApart &&
                        (apart(kernel, *load, inner) >= kFarApart || width < 8);
  int64_t tile = segments ? 2048 / std::min<int64_t>(offsets, 1024) : 1024;
  while (tile > 64 && parallel_points(kernel) / tile < 4 * device.units) tile /= 2;
  Parameters chosen = {{"segments", segments}, {"columns", 1}, {"rows", 1}, {"slices", 1}};
  chosen["x_block"] = block_for(width, std::min<int64_t>(tile, 512));
  chosen["y_block"] = std::max<int64_t>(1, std::min(tile / chosen["x_block"], next_power_of_two(height)));
  chosen["num_warps"] = std::clamp<int64_t>(
      chosen["x_block"] * chosen["y_block"] * (segments ? offsets : 1) / (segments ? 256 : 128), 1, 8);
  return chosen;
}

const ParameterTable& takes() {
  static const ParameterTable table({
      {.name = "segments", .least = 0, .most = 1, .unsaid = 0, .powers_of_two = false, .tried = {0, 1}},
      {.name = "columns", .least = 1, .most = 16, .unsaid = 1, .powers_of_two = true, .tried = {1, 2, 4}},
      {.name = "rows", .least = 1, .most = 16, .unsaid = 1, .powers_of_two = true, .tried = {1, 2, 4, 8}},
      {.name = "slices", .least = 1, .most = 16, .unsaid = 1, .powers_of_two = true, .tried = {1, 2}},
      {.name = "x_block",
       .least = 1,
       .most = kMostLanes,
       .unsaid = 1,
       .powers_of_two = true,
       .tried = {32, 64, 128, 256, 512}},
      {.name = "y_block",
       .least = 1,
       .most = kMostLanes,
       .unsaid = 1,
       .powers_of_two = true,
       .tried = {1, 2, 4, 8, 16}},
      {.name = "num_warps", .least = 1, .most = kMostWarps, .unsaid = 4, .powers_of_two = true, .tried = {1, 2, 4, 8}},
  });
  return table;
}

std::vector<ParameterRange> space(const LoweredGroup&, const DeviceDescription&) {
  std::vector<ParameterRange> ranges;
  for (const ParameterSpec& spec : takes().specs()) ranges.push_back(takes().range(spec.name));
  return ranges;
}

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription&) {
  const ParameterTable& table = takes();
  GroupKernel& kernel = group.kernel;
  prepare(kernel);
  const int inner = kernel.parallel - 1;
  const bool segments = table.read(parameters, "segments") != 0,
             is_small = !segments && reduce_points(kernel) <= kMostOffsets;
  bool unrolled = false;
  if (is_small) {
    std::vector<int64_t> repeats(kernel.symbols.size(), 1);
    const char* names[] = {"columns", "rows", "slices"};
    int64_t loads = reduce_points(kernel);
    for (int place = 0; place < 3 && place <= inner; ++place) {
      int64_t& results = repeats[inner - place] = std::min(table.read(parameters, names[place]),
                                                           extent_of(kernel, inner - place));
      while (results > 1 && loads * results > kMostUnrolledLoads) results /= 2;
      loads *= results;
    }
    unrolled = unroll_reductions(kernel, repeats);
  }
  const int last = axis_count(kernel) - 1;
  lower::KernelSchedule schedule = in_single_points(kernel, table.read(parameters, "num_warps"));
  // What neighbouring small windows share is for the cache to keep, as it does by itself.
  schedule.cache_hints = !is_small && kernel.parallel <= last;
  schedule.wide_accesses = unrolled;
  for (int axis = 0; axis <= last; ++axis) {
    lower::AxisSchedule& how = schedule.axes[axis];
    if (!is_serial(kernel, axis)) {
      if (axis >= inner - 1)
        how = in_blocks(kernel, axis,
                        std::min(table.read(parameters, axis == inner ? "x_block" : "y_block"),
                                 next_power_of_two(extent_of(kernel, axis))));
    } else if (is_small && extent_of(kernel, axis) <= tile::kMostUnrolled) {
      how = {.mapping = lower::Mapping::kLoop, .width = 1, .unrolled = true};
    } else if (!segments || axis < last || extent_of(kernel, axis) > kLongestSegment) {
      how = in_loop(segments && axis == last ? kLongestSegment : 1);
      how.stops = true;
    }
  }
  ScheduledGroup result;
  result.tiles.push_back(as_tiles(std::move(group), std::move(schedule)));
  return result;
}

}  // namespace

const Scheduler kSlidingScheduler{kSliding, GroupWork::kElements, is_sliding, takes, defaults, space, lower};

}  // namespace kw::triton
