// Convolutions as products on tensor cores (implicit GEMM): filters times windows of the image, with what follows them
// element by element.
//
// Operands in 16 bits are multiplied as they are. Those in single precision, where PyTorch rounds what enters
// convolutions to TF32's 11 digits, are products of halves, which have as many; elsewhere they are sums of two halves,
// and three products (scheme fp16x3 of lower/schedule.hpp). A power of two for each sample and each filter keeps them
// within a half's range, and what it does not keep there is computed again in TF32, or f32 (docs/precision.md). A
// kernel before the product lays the image out with channels side by side and zeros around it, so that the product's
// loads are long and need no masks; it may also make the image. Depthwise convolutions are sums of a few products each:
// a thread makes several rows of one column, and loads what their windows share once.
#include <algorithm>

#include "plan/convolution_kernels.hpp"
#include "plan/group_kinds.hpp"

namespace kw::plan {

namespace {

enum SchemeChoice : int64_t { kOneHalf = 0, kFp16x3 = 1 };  // of single precision

constexpr int64_t kLeastBlock = 16;          // of a dot in Triton
constexpr int64_t kMostOfBlock = 128 * 256;  // results, where every block has all filters: as many as registers hold

bool can_take(const LoweredGroup& group) {
  return group.convolution && !(group.convolution->folds_filters && group.convolution->is_direct());
}

const ParameterTable& takes() {
  static const ParameterTable table({
      {.name = "block_m", .least = 16, .most = 256, .unsaid = 128, .powers_of_two = true, .tried = {32, 64, 128, 256}},
      {.name = "block_n",
       .least = 16,
       .most = 4096,
       .unsaid = 128,
       .powers_of_two = true,
       .tried = {64, 128, 256, 1024}},
      {.name = "block_k", .least = 16, .most = 256, .unsaid = 64, .powers_of_two = true, .tried = {32, 64, 128}},
      {.name = "stages", .least = 1, .most = 8, .unsaid = 3, .powers_of_two = false, .tried = {1, 2, 3, 4}},
      {.name = "num_warps", .least = 1, .most = 16, .unsaid = 8, .powers_of_two = true, .tried = {4, 8}},
      // Depthwise: 1 is what it was before there was a choice.
      {.name = "rows", .least = 1, .most = 16, .unsaid = 1, .powers_of_two = false, .tried = {1, 2, 4, 7, 8}},
      {.name = "rows_together", .least = 1, .most = 4, .unsaid = 1, .powers_of_two = true, .tried = {1, 2}},
      {.name = "columns_together", .least = 1, .most = 4, .unsaid = 1, .powers_of_two = true, .tried = {1, 2}},
      {.name = "phases_apart", .least = 0, .most = 1, .unsaid = 0, .powers_of_two = false, .tried = {0, 1}},
      {.name = "consumers", .least = 1, .most = 2, .unsaid = 1, .powers_of_two = true, .tried = {1, 2}},
      {.name = "scheme", .least = kOneHalf, .most = kFp16x3, .unsaid = kFp16x3, .powers_of_two = false, .tried = {}},
  });
  return table;
}

// The rows of a thread that has one place of each, with the fewest loads. Every multiprocessor has some warps.
int64_t default_rows(const LoweredGroup& group, const DeviceDescription& device) {
  const Convolution& one = *group.convolution;
  // Few taps are better read four places at a time: 3 by 1 took 0.45 ms so on an H100, and 0.66 with rows.
  constexpr int64_t kFewTaps = 8, kFewWarps = 4;
  if (one.taps() <= kFewTaps) return 1;
  // With stride fewer rows of the window are shared: 5 by 5 taps at stride 2 took 0.75 ms with 4 rows, 0.95 with 8 and
  // 2.17 with 1.
  const bool strides = one.dims.size() > 1 && one.dims[one.dims.size() - 2].stride > 1;
  const int64_t most = strides ? 4 : 8;
  const int64_t planes = one.samples * one.groups * one.filters * one.phases();
  const auto warps = [&](int64_t rows) { return ceil_divide(places_of_threads(one, rows), kWarp); };
  const auto loads = [&](int64_t rows) { return warps(rows) * (one.taps() + one.places_of_windows(rows)); };
  int64_t best = 1;
  for (int64_t wished = 2; wished <= most; ++wished) {
    const int64_t rows = rows_of_thread(group, wished);
    if (planes * warps(rows) >= kFewWarps * device.units && loads(rows) < loads(best)) best = rows;
  }
  return best;
}

// Threads side by side read side by side only where each has one place of a row. As many to a block as leave few of
// them, in its last, without one.
Parameters direct_defaults(const LoweredGroup& group, const DeviceDescription& device) {
  const Convolution& one = *group.convolution;
  const int64_t rows = default_rows(group, device), places = places_of_threads(one, rows);
  if (rows == 1) {
    const int64_t width = std::clamp<int64_t>(next_power_of_two(places), kWarp, 1024);
    return {{"block_n", width}, {"num_warps", std::max<int64_t>(width / 512, 1)}};
  }
  const auto padded = [&](int64_t width) { return ceil_divide(places, width) * width; };
  int64_t width = std::clamp<int64_t>(next_power_of_two(places), kWarp, 4 * kWarp);
  while (width > kWarp && 10 * padded(width) > 11 * padded(kWarp)) width /= 2;
  return {{"block_n", width}, {"num_warps", width / kWarp}, {"rows", rows}};
}

struct Blocks {
  int64_t filters = 1, positions = 1, depth = 1, stages = 1, warps = 4;
};

// A row of few channels is read in pieces of 8 or 16 bytes, for which asynchronous copies are slow: more blocks at once
// hide more than loads ahead do.
Blocks of_few_channels(const LoweredGroup& group, Blocks blocks) {
  const Convolution& one = *group.convolution;
  const int dearest = dearest_operation(group);
  blocks.depth = depth_of_tap_row(one);
  if (one.exact || one.phases() > 1 || blocks.filters * blocks.positions < 32 * 128) return blocks;
  // Results that are folded as well: half as many to a block are 2 to 5 % faster.
  if (group.statistics && blocks.filters == 64 && blocks.positions == 128) blocks.positions = 64;
  // Long rows: the kernel of 3 of them 0.70 ms for 0.80, of 6 0.32 for 0.33 (with four stages it took 0.25, the other
  // 0.94).
  else if (blocks.depth == 64 && blocks.filters == 64) blocks.stages = 2;
  else if (dearest == 0 || one.folds_filters || (dearest >= kDear && blocks.filters >= 64)) blocks.warps = 8;
  return blocks;
}

// Does a row of taps fill most of a step? Then a step is such a row.
bool walks_tap_rows(const Convolution& one) {
  const int64_t row = depth_of_tap_row(one), channels = kept_channels(one);
  return channels < 32 && row > 0 && row <= 64 && !one.transposed && 2 * one.dims.back().taps * channels > row;
}

// Neighbouring results along the last two dimensions that read one window of the image.
struct Together {
  int64_t rows = 1, columns = 1;
};

// Where that can be: as phases of one place.
bool put_together(LoweredGroup& group, const Together& together) {
  const Convolution& one = *group.convolution;
  if (one.is_direct() || one.image.dtype != DType::f32) return false;
  std::vector<int64_t> phases(one.dims.size(), 1);
  phases.back() = together.columns;
  if (phases.size() > 1) phases[phases.size() - 2] = together.rows;
  auto phased = with_phases(one, phases);
  if (!phased) return false;
  group.convolution = *std::move(phased);
  return true;
}

// Of few channels to few filters, blocks wait for their loads: two columns take as many, where the row of taps that
// both read fills no longer step, and two rows take four rows of taps in place of six. On an H200, of 3 channels to 16
// filters 0.58 ms for 0.84 by columns; of 8 to 16 0.41 for 0.62, 0.38 by both; to 32 0.68 for 0.85. Of 64 filters a
// block has enough to do with one.
Together default_together(const LoweredGroup& group) {
  constexpr int64_t kMostRows = 64;
  const Convolution& one = *group.convolution;
  const int64_t filters = next_power_of_two(one.filters);
  Together made;
  if (!walks_tap_rows(one) || one.folds_filters || 2 * filters > kMostRows) return made;
  const auto can = [&](const Together& together) {
    LoweredGroup phased = group;
    return put_together(phased, together) && depth_of_tap_row(*phased.convolution) == depth_of_tap_row(one);
  };
  const bool is_dense = std::all_of(one.dims.end() - 2, one.dims.end(),
                                    [](const auto& dim) { return dim.stride == 1; });
  if (!is_dense) return made;
  if (can({.columns = 2})) made.columns = 2;
  const bool has_few = !one.exact && 4 * filters <= kMostRows;
  if ((made.columns == 1 || has_few) && can({.rows = 2, .columns = made.columns})) made.rows = 2;
  return made;
}

// The largest blocks of which every multiprocessor has one. Figures of an H200.
Blocks default_blocks(const LoweredGroup& group, const DeviceDescription& device) {
  const Convolution& one = *group.convolution;
  const int64_t kept = kept_channels(one), depth = one.taps() * kept, places = one.samples * one.places();
  const int64_t rows = one.filters * one.rows_of_filter();
  int64_t outer_phases = one.phases();
  for (auto dim = one.dims.end() - one.stacked_dims(); dim != one.dims.end(); ++dim) outer_phases /= dim->phases;
  // With phases among the rows loops are short, and blocks that overlap count for more than large ones.
  const int64_t most = one.folds_filters ? kMostFolded : one.rows_of_filter() > 1 ? 64 : 128;
  Blocks blocks;
  int64_t &filters = blocks.filters, &positions = blocks.positions, &step = blocks.depth;
  filters = std::clamp<int64_t>(next_power_of_two(rows), kLeastBlock, most);
  positions = std::clamp<int64_t>(next_power_of_two(places), kLeastBlock, std::min<int64_t>(128 * 128 / filters, 128));
  const auto count = [&] {
    return outer_phases * one.groups * ceil_divide(rows, filters) * ceil_divide(places, positions);
  };
  while (count() < device.units && filters * positions > 64 * 64 && positions > kLeastBlock)
    (positions >= filters || one.folds_filters ? positions : filters) /= 2;
  if (walks_tap_rows(one)) return of_few_channels(group, blocks);
  step = std::clamp<int64_t>(next_power_of_two(depth), kLeastBlock, 64);
  // Unless the last of the longer steps is mostly of nothing.
  if (step == 64 && ceil_divide(depth, 64) * 64 * 16 > ceil_divide(depth, 32) * 32 * 17) step = 32;
  if (kept >= 32 && kept % step != 0) step = kept % 32 == 0 ? 32 : step;
  const int64_t steps = ceil_divide(depth, step);
  const int dearest = dearest_operation(group);
  const bool many = !one.exact && !one.folds_filters && one.phases() == 1 && positions == 128 &&
                    count() >= 8 * device.units;
  // Long loops: more places share a filter's loads. Of 32 channels and up to 64 filters, 45 taps took 0.966 ms for
  // 1.282, 21 of them 0.970 for 1.032; of 64 channels and 128 filters, 125 taps 1.16 for 1.35, 35 of them 1.00
  // for 1.07.
  if (many && step == 32 && steps >= 20 && filters <= 64)
    return {.filters = 64, .positions = 256, .depth = step, .stages = 4, .warps = dearest >= kDear ? 8 : 4};
  if (many && step == 64 && steps >= 32 && filters == 128) positions = 256;
  // Short loops of products that are stored as they are: fewer threads hold the sums, and more blocks overlap. Not
  // where 128 threads would hold 128 results each twice, to fold them as well.
  constexpr int64_t kShortLoop = 6;
  const bool holds_twice = filters * positions >= 128 * 128 && group.statistics;
  const bool takes_few = !one.exact && dearest == 0 && !holds_twice && steps <= kShortLoop;
  if (!takes_few && (filters * positions >= 128 * 128 || (one.exact && positions * step >= 256 * 64) ||
                     (dearest >= kDear && !group.statistics && filters * positions >= 64 * 128)))
    blocks.warps = 8;
  // Where a block has all filters, its results wait for each other: two blocks a multiprocessor (0.96 ms for 1.27).
  const int64_t bytes = (filters + positions) * step * (one.exact ? 4 : 2),
                room = device.operand_bytes() / (one.folds_filters ? 2 : 1),
                most_stages = std::min(steps, one.exact    ? int64_t{2}
                                              : step == 64 ? int64_t{3}
                                                           : int64_t{4});
  blocks.stages = std::clamp<int64_t>(room / bytes, 1, most_stages);
  return blocks;
}

// Of two consumers that take blocks in turn, one stores while the other multiplies. On an H200, of 64 channels and 3 by
// 3 taps to 64 filters at 256 by 256 the kernel with GELU takes 0.91 ms so, and 1.04 in blocks that are started one by
// one. To 128 filters both take as long (0.65 ms), and dear functions want more warps than consumers have (mish twice:
// 2.06 ms for 1.8).
std::optional<ConvolutionBlocks> blocks_in_turn(const LoweredGroup& group, const DeviceDescription& device) {
  const Convolution& one = *group.convolution;
  if (!device.warp_roles || one.exact || one.filters != 64 || dearest_operation(group) >= kDear) return std::nullopt;
  ConvolutionBlocks blocks{.filters = 64, .positions = 256, .depth = kept_channels(one) % 64 == 0 ? 64 : 32};
  // Sums go through shared memory to where they are stored from.
  const int64_t sums = blocks.filters * blocks.positions * 4,
                of_stage = (blocks.filters + blocks.positions) * blocks.depth * 2;
  constexpr int64_t kMostStages = 6, kBarriers = 1024;
  blocks.stages = static_cast<int>(std::min((device.shared_bytes - sums - kBarriers) / of_stage, kMostStages));
  const int64_t count = one.samples * one.groups * ceil_divide(one.filters, blocks.filters) *
                        ceil_divide(counted_positions(one), blocks.positions);
  // What lies between rows is computed in vain.
  constexpr double kMostInVain = 1.2;
  const bool is_wide = static_cast<double>(counted_positions(one)) <= kMostInVain * static_cast<double>(one.places());
  if (!is_wide || blocks.stages < 2 || count < 2 * device.units || !can_count_positions(group, blocks))
    return std::nullopt;
  return blocks;
}

// Where that spares a fifth of the products, and each kernel has several blocks for every multiprocessor. What is
// stored must be rows of whole pairs of lines: phases share lines else, which one kernel after the other would write in
// part. On an H200, 32 channels and 27 taps to 64 filters: rows of 64 numbers 0.45 ms for 0.48, of 32 0.70 for 0.65, of
// 95 (64 to 128) 3.2 for 2.7; folded over the filters (in two dimensions) 0.123 for 0.151.
bool parts_phases(const LoweredGroup& group, const Blocks& blocks, const DeviceDescription& device) {
  constexpr double kMostWalked = 0.8;
  constexpr int64_t kLeastBlocks = 4, kBytesOfRow = 256;
  const Convolution& one = *group.convolution;
  const int64_t rows = one.filters * one.rows_of_filter(),
                count = one.groups * ceil_divide(rows, blocks.filters) *
                        ceil_divide(one.samples * one.places(), blocks.positions);
  const bool is_folded = (one.folds_filters && !one.keeps_filters) || (one.window() > 1 && !one.keeps_windows),
             has_whole_rows = one.dims.back().output * size_of(one.image.dtype) % kBytesOfRow == 0;
  return can_part_phases(one, blocks.depth) && one.share_of_taps() <= kMostWalked && (is_folded || has_whole_rows) &&
         count >= kLeastBlocks * device.units;
}

Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  if (group.convolution->is_direct()) return direct_defaults(group, device);
  if (const auto turns = blocks_in_turn(group, device))
    return {{"block_m", turns->filters},
            {"block_n", turns->positions},
            {"block_k", turns->depth},
            {"stages", turns->stages},
            {"num_warps", 4},
            {"consumers", 2},
            {"scheme", kOneHalf}};
  const Together together = default_together(group);
  LoweredGroup phased = group;
  put_together(phased, together);
  const Blocks blocks = default_blocks(phased, device);
  Parameters made = {{"block_m", blocks.filters}, {"block_n", blocks.positions},
                     {"block_k", blocks.depth},   {"stages", blocks.stages},
                     {"num_warps", blocks.warps}, {"scheme", group.convolution->exact ? kFp16x3 : kOneHalf}};
  if (parts_phases(phased, blocks, device)) made["phases_apart"] = 1;
  if (together.rows > 1) made["rows_together"] = together.rows;
  if (together.columns > 1) made["columns_together"] = together.columns;
  return made;
}

std::vector<ParameterRange> space(const LoweredGroup& group, const DeviceDescription& device) {
  std::vector<ParameterRange> ranges = takes().ranges();
  for (ParameterRange& range : ranges)
    if (range.name == "consumers" && !device.warp_roles) range.values = {1};
  if (!can_part_phases(*group.convolution, 16))
    std::erase_if(ranges, [](const ParameterRange& range) { return range.name == "phases_apart"; });
  // Only depthwise convolutions have rows to share.
  if (!group.convolution->is_direct())
    std::erase_if(ranges, [](const ParameterRange& range) { return range.name == "rows"; });
  LoweredGroup phased = group;
  if (!walks_tap_rows(*group.convolution) || !put_together(phased, {.columns = 2}))
    std::erase_if(ranges, [](const ParameterRange& range) { return range.name.ends_with("_together"); });
  // Blocks that have all filters are no narrower than these.
  if (group.convolution->folds_filters)
    for (ParameterRange& range : ranges)
      if (range.name == "block_m")
        std::erase_if(range.values, [&](int64_t width) {
          return width < group.convolution->filters * group.convolution->rows_of_filter();
        });
  return ranges;
}

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device) {
  const ParameterTable& table = takes();
  const auto read = [&](std::string_view name) { return table.read(parameters, name); };
  put_together(group, {.rows = read("rows_together"), .columns = read("columns_together")});
  const Convolution& one = *group.convolution;
  int64_t filters = read("block_m"), positions = read("block_n");
  const int64_t rows = rows_of_thread(group, read("rows"));
  positions = one.is_direct() ? std::min(positions, next_power_of_two(places_of_threads(one, rows)))
                              : std::min<int64_t>(positions, 256);
  if (one.folds_filters) {
    filters = std::max(filters, next_power_of_two(one.filters) * one.rows_of_filter());
    positions = std::min(positions, kMostOfBlock / filters);
  }
  ConvolutionBlocks blocks{.filters = filters,
                           .positions = positions,
                           .depth = read("block_k"),
                           .stages = static_cast<int>(read("stages")),
                           .warps = static_cast<int>(read("num_warps")),
                           .halves = read("scheme") == kFp16x3,
                           .rows = rows};
  blocks.phases_apart = read("phases_apart") > 0 && can_part_phases(one, blocks.depth);
  if (read("consumers") > 1 && device.warp_roles && !blocks.halves && can_count_positions(group, blocks)) {
    blocks.consumers = read("consumers");
    blocks.programs = device.units;
    blocks.warps = 4;
  }
  return convolution_kernels(group, blocks);
}

}  // namespace

const Scheduler kConvolutionScheduler{"convolution", GroupWork::kProducts, can_take, takes, defaults, space, lower};

}  // namespace kw::plan
