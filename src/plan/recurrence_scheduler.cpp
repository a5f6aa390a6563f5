// Recurrent layers (LSTM, GRU, RNN): one kernel that makes a wave of the recurrence.
//
// Of a stack in one direction, a launch takes one step in every layer: the layer l the time (launch - l), so that what
// the layer below made of that time is there since the launch before. Of layers in two directions it takes one step
// both ways; the layers come one after the other, since each reads the whole sequence below it.
//
// Where all blocks can run at once and their weights fit on chip, the kernel is `persistent`: launched once, its blocks
// keep their weights, walk the waves, and wait for each other after each. Else the launch of the next wave is what
// blocks wait for each other by; a CUDA graph makes launches short.
//
// The products of the input with the lowest layer's weights (of every layer, in two directions) need no step before,
// and are made for all times at once. Parameters are separate tensors: they are copied into one, which the kernel
// indexes by layer.
#include <algorithm>

#include "plan/linear_steps.hpp"
#include "plan/recurrence_kernels.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

// How the gates' products are made: one for each gate, or one for all, whose columns, or rows, are units and gates.
enum GatesChoice : int64_t { kApart = 0, kAsColumns = 1, kAsRows = 2 };

constexpr int64_t kLeastBlock = 16;  // of a dot in Triton

bool can_take(const LoweredGroup& group) { return group.recurrence.has_value(); }

const ParameterTable& takes() {
  static const ParameterTable table({
      {.name = "block_m", .least = 1, .most = 128, .unsaid = 16, .powers_of_two = true, .tried = {16, 32, 64}},
      {.name = "block_n", .least = 1, .most = 128, .unsaid = 16, .powers_of_two = true, .tried = {4, 8, 16, 32, 64}},
      {.name = "block_k", .least = 16, .most = 256, .unsaid = 64, .powers_of_two = true, .tried = {32, 64, 128}},
      {.name = "stages", .least = 1, .most = 8, .unsaid = 3, .powers_of_two = false, .tried = {2, 3, 5}},
      {.name = "num_warps", .least = 1, .most = 16, .unsaid = 4, .powers_of_two = true, .tried = {2, 4, 8}},
      {.name = "gates",
       .least = kApart,
       .most = kAsRows,
       .unsaid = kAsColumns,
       .powers_of_two = false,
       .tried = {1, 2}},
      {.name = "persistent", .least = 0, .most = 1, .unsaid = 0, .powers_of_two = false, .tried = {0, 1}},
  });
  return table;
}

constexpr int64_t kFewUnits = 8;
// Terms that the threads of a block hold, 64 each.
constexpr int64_t kTermsOfBlock = 64 * 128;
// Of a product that four warps make together.
constexpr int64_t kRowsOfWarpgroup = 64;

// Blocks of a wave.
int64_t block_count(const Recurrence& one, int64_t batch, int64_t units) {
  return (one.directions > 1 ? one.directions : one.layers) * ceil_divide(one.batch, batch) *
         ceil_divide(one.hidden, units);
}

// Products of a wave with weights: with a cell's own, and of a stack with the input's.
int64_t product_count(const Recurrence& one) { return one.directions == 1 && one.layers > 1 ? 2 : 1; }

// Into how many bfloat16 an LSTM's factors in f32 are taken apart. Sixteen digits do where each layer also multiplies
// what the one below made, in TF32; in two directions, on inputs that saturate gates, they were off by up to 30 times
// what cuDNN is.
int parts_of(const Recurrence& one) { return one.directions > 1 || one.layers == 1 ? 3 : 2; }

// Do all blocks run at once, each on a multiprocessor of its own that holds their weights and the states they read?
bool can_be_persistent(const Recurrence& one, int64_t batch, int64_t units, const DeviceDescription& device) {
  const int64_t in_pieces = one.kind == CellKind::kLstm ? 2 * parts_of(one) : 4, below = product_count(one) - 1,
                bytes = one.dtype == DType::f32 ? in_pieces + 4 * below : 2 * (1 + below),
                rows = units * next_power_of_two(one.gates()),
                depth = std::max(next_power_of_two(one.hidden), kLeastBlock);
  return !one.exact && block_count(one, batch, units) <= device.units &&
         (rows + batch) * depth * bytes <= device.operand_bytes();
}

// The same where threads add up in full f32 what weights multiply, gate by gate: a tile of a block is all of a gate's
// terms, which lie in registers, as all its weights do.
bool can_be_summed(const Recurrence& one, int64_t batch, int64_t units, const DeviceDescription& device) {
  const int64_t depth = next_power_of_two(one.hidden);
  return one.products && block_count(one, batch, units) <= device.units &&
         std::max(batch, one.gates()) * units * depth <= kTermsOfBlock;
}

// The smallest blocks that all run at once; of those, the ones whose sides are alike, which load least.
std::optional<Parameters> summed_defaults(const Recurrence& one, const DeviceDescription& device) {
  std::optional<Parameters> best;
  int64_t least = 0;
  for (int64_t batch = 1; batch <= next_power_of_two(one.batch); batch *= 2)
    for (int64_t units = 1; units <= next_power_of_two(one.hidden); units *= 2) {
      const int64_t loaded = batch * units * kLeastBlock + batch + units;
      if (!can_be_summed(one, batch, units, device) || (best && least <= loaded)) continue;
      least = loaded;
      best = Parameters{{"block_m", batch}, {"block_n", units}, {"num_warps", 4}, {"gates", kApart}, {"persistent", 1}};
    }
  return best;
}

// Units of a block: a side of a product has 16 rows or columns at least, which may be four units' gates.
int64_t least_units(const Recurrence& one, bool joined) {
  return joined && one.gates() > 1 ? kLeastBlock / next_power_of_two(one.gates()) : kLeastBlock;
}

// Of linear recurrences of elements, of which a thread has one: blocks on all multiprocessors, and loads in flight.
Parameters linear_defaults(const Recurrence& one, const DeviceDescription& device) {
  int64_t lanes = 128;
  while (lanes > 32 && ceil_divide(one.hidden, lanes) < 2 * device.units) lanes /= 2;
  return {{"block_n", lanes}, {"stages", 8}, {"num_warps", lanes / 32}};
}

// Few units to a block, so that many multiprocessors load weights, but no more blocks than there are of those: a launch
// is as long as its longest block. All of a sum's loads are in flight at once, where they fit.
Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  const Recurrence& one = *group.recurrence;
  if (one.linear) return linear_defaults(one, device);
  const int64_t products = product_count(one);
  const int64_t batch = std::clamp<int64_t>(next_power_of_two(one.batch), kLeastBlock, 64);
  const int64_t units_of_rows = kRowsOfWarpgroup / next_power_of_two(one.gates());
  if (auto summed = summed_defaults(one, device)) return *summed;
  for (int64_t samples = batch; samples >= kLeastBlock; samples /= 2)
    if (can_be_persistent(one, samples, units_of_rows, device))
      return {
          {"block_m", samples}, {"block_n", units_of_rows}, {"num_warps", 4}, {"gates", kAsRows}, {"persistent", 1}};
  int64_t units = std::max(least_units(one, true), kFewUnits);
  while (block_count(one, batch, units) > device.units && units < 64 && units < one.hidden) units *= 2;
  const int64_t columns = units * next_power_of_two(one.gates());
  int64_t depth = std::clamp<int64_t>(next_power_of_two(one.hidden), kLeastBlock, 64);
  const auto fitting = [&] {
    return device.operand_bytes() / ((columns + batch) * products * depth * size_of(one.dtype));
  };
  while (fitting() < 2 && depth > kLeastBlock) depth /= 2;
  // Products of 64 rows and more read shared memory while the next loads arrive there.
  const int64_t held = batch >= 64 ? 1 : 0, most = std::min<int64_t>(ceil_divide(one.hidden, depth), 7);
  return {{"block_m", batch},
          {"block_n", units},
          {"block_k", depth},
          {"stages", 1 + std::clamp<int64_t>(fitting() - held, 1, most)},
          {"num_warps", batch * columns >= 64 * 128 ? 8 : 4},
          {"gates", kAsColumns}};
}

std::vector<ParameterRange> space(const LoweredGroup& group, const DeviceDescription& device) {
  std::vector<ParameterRange> ranges = takes().ranges();
  if (group.recurrence->linear) {
    std::erase_if(ranges, [](const ParameterRange& range) {
      return range.name != "block_n" && range.name != "stages" && range.name != "num_warps";
    });
    for (ParameterRange& range : ranges)
      if (range.name == "block_n") range.values = {32, 64, 128};
    return ranges;
  }
  if (summed_defaults(*group.recurrence, device)) {
    for (ParameterRange& range : ranges)
      if (range.name == "block_m" || range.name == "block_n") range.values = {1, 2, 4, 8, 16, 32};
    return ranges;
  }
  if (group.recurrence->gates() > 1) return ranges;
  // What has one gate has nothing to join, and blocks of 16 units at least.
  std::erase_if(ranges, [](const ParameterRange& range) { return range.name == "gates"; });
  for (ParameterRange& range : ranges)
    if (range.name == "block_n") std::erase_if(range.values, [](int64_t units) { return units < kLeastBlock; });
  return ranges;
}

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device) {
  const ParameterTable& table = takes();
  const auto read = [&](std::string_view name) { return table.read(parameters, name); };
  const Recurrence& one = *group.recurrence;
  if (one.linear)
    return linear_step_kernel(group, {.lanes = read("block_n"),
                                      .prefetch = read("stages"),
                                      .warps = static_cast<int>(read("num_warps")),
                                      .flat = true});
  const bool summed = read("persistent") == 1 && can_be_summed(one, read("block_m"), read("block_n"), device);
  if (!summed && read("block_m") < kLeastBlock)
    throw Error(ErrorKind::kUser,
                {.message = "the schedule has 'block_m' = " + std::to_string(read("block_m")) +
                            ", which is not allowed for products of tiles",
                 .where = {},
                 .source = {},
                 .hint = "'block_m' is 16 at least where threads do not add up all of a block's terms.",
                 .detail = {},
                 .code = "bad-schedule-parameter"});
  const bool joined = read("gates") != kApart && !summed;
  const int64_t batch = read("block_m"),
                units = summed ? read("block_n") : std::max(read("block_n"), least_units(one, joined));
  const bool persistent = summed || (read("persistent") == 1 && can_be_persistent(one, batch, units, device));
  return recurrence_kernels(group, {.batch = batch,
                                    .units = units,
                                    .depth = read("block_k"),
                                    .stages = static_cast<int>(read("stages")),
                                    .warps = static_cast<int>(read("num_warps")),
                                    .joined = joined,
                                    .gates_first = read("gates") == kAsRows || (persistent && one.gates() == 1),
                                    .persistent = persistent,
                                    .parts = parts_of(one),
                                    .summed = summed});
}

}  // namespace

const Scheduler kRecurrenceScheduler{"recurrence", GroupWork::kRecurrences, can_take, takes, defaults, space, lower};

}  // namespace kw::plan
