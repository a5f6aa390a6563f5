// Attention: scores, softmax and the weighted sum of values in one kernel that walks the keys once, with what follows
// it element by element.
//
// 16-bit operands are multiplied as they are; those in single precision are split into halves first, as contractions'
// are (contraction.cpp). Weights are split where they are computed.
#include <algorithm>

#include "plan/attention_kernels.hpp"
#include "plan/attention_mask.hpp"

namespace kw::plan {

namespace {

enum SchemeChoice : int64_t { kIeee = 0, kFp16x3 = 1 };

constexpr int64_t kLeastBlock = 16;        // of a dot in Triton
constexpr int64_t kFewQueries = kFewRows;  // of which blocks that share out the keys are made
constexpr int64_t kFewWithoutDot = 8;
constexpr int64_t kMostParts = 128;

bool can_take(const LoweredGroup& group) { return group.attention.has_value(); }

const ParameterTable& takes() {
  static const ParameterTable table({
      {.name = "block_m", .least = 1, .most = 256, .unsaid = 128, .powers_of_two = true, .tried = {64, 128}},
      {.name = "block_n", .least = 4, .most = 256, .unsaid = 64, .powers_of_two = true, .tried = {32, 64, 128}},
      {.name = "stages", .least = 1, .most = 8, .unsaid = 2, .powers_of_two = false, .tried = {1, 2, 3}},
      {.name = "num_warps", .least = 1, .most = 16, .unsaid = 8, .powers_of_two = true, .tried = {4, 8}},
      {.name = "bulk", .least = 0, .most = 1, .unsaid = 1, .powers_of_two = false, .tried = {0, 1}},
      {.name = "split_keys", .least = 1, .most = kMostParts, .unsaid = 1, .powers_of_two = false, .tried = {}},
      {.name = "last_keys", .least = 0, .most = 1, .unsaid = 0, .powers_of_two = false, .tried = {0, 1}},
      {.name = "scheme", .least = kIeee, .most = kFp16x3, .unsaid = kFp16x3, .powers_of_two = false, .tried = {}},
  });
  return table;
}

bool is_wide(const LoweredGroup& group) {
  return std::max(group.attention->scores->product->depth, group.product->columns) > kWidestHead;
}

// Keys of a step. A dot has no fewer than 16.
int64_t keys_of_step(int64_t queries, int64_t keys) {
  return queries < kLeastBlock ? keys : std::max(keys, kLeastBlock);
}

// As many parts of the keys as are wanted, or fewer: of whole steps where there are not much fewer. Where something is
// read at the places of scores they are equal: it has no place beyond the last key.
int64_t parts_of(const LoweredGroup& group, int64_t step, int64_t wanted) {
  const Attention& attention = *group.attention;
  const int64_t keys = group.product->depth;
  if (!attention.has_softmax) return 1;
  int64_t parts = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(keys / step, 1));
  const bool plain = attention.scores->kernel.stores.empty() && !attention.mask && !attention.scores->product->addend &&
                     !attention.weights.group;
  for (int64_t whole = parts; 2 * whole > parts; --whole)
    if (keys % (whole * step) == 0) return whole;
  while (!plain && keys % parts != 0) --parts;
  return parts;
}

// Is a mask so small beside what it decides that it pays to look where each query's keys end, as padding and triangles
// do?
bool has_small_mask(const LoweredGroup& group) {
  constexpr int64_t kTimes = 8, kKeys = 256;
  const Product& values = *group.product;
  const int64_t conditions = conditions_of_mask(group);
  return conditions > 0 && values.depth >= kKeys &&
         conditions <= values.batches() * values.rows * values.depth / kTimes;
}

// Decoding: a step reads all keys for few queries, and is bound by memory. Blocks share out the keys until there are
// several to a multiprocessor. In single precision products of so few rows are no work for tensor cores; of several
// rows they are bound by adding up across warps, so that blocks are one (docs/measurements/attention.md).
// Of wide heads steps are shorter, so that two of them are in shared memory.
Parameters defaults_of_few_queries(const LoweredGroup& group, const DeviceDescription& device) {
  constexpr int64_t kElements = 8192, kWarpsOfUnit = 16, kLeastSteps = 4, kRows = 2, kRowsOfWideHeads = 32;
  const Product &scores = *group.attention->scores->product, &values = *group.product;
  const bool wide = is_wide(group), is_single = values.right.dtype == DType::f32,
             dot = !is_single || (values.rows > kFewWithoutDot && !wide), one = !dot && values.rows == 1;
  const int64_t widest = next_power_of_two(std::max(scores.depth, values.columns)),
                bytes = (scores.depth + values.columns) * size_of(values.right.dtype),  // of a key and its values
      queries = dot ? std::clamp(next_power_of_two(values.rows), kLeastBlock, wide ? kRowsOfWideHeads : kFewQueries)
                    : std::min(next_power_of_two(values.rows), kRows);
  int64_t keys = dot           ? 64
                 : one || wide ? std::clamp<int64_t>(kElements / widest, wide ? 4 : kLeastBlock, 64)
                               : kLeastBlock;
  while (wide && dot && keys > kLeastBlock && 2 * keys * bytes > device.operand_bytes()) keys /= 2;
  const int64_t warps = queries > kFewQueries ? 8
                        : dot || one || wide  ? 4
                                              : 1,
                blocks = values.batches() * ceil_divide(values.rows, queries),
                wanted = ceil_divide(kWarpsOfUnit / std::max<int64_t>(warps, 2) * device.units, blocks),
                stages = wide         ? std::clamp<int64_t>(device.operand_bytes() / (keys * bytes), 1, 3)
                         : dot || one ? 3
                                      : 2;
  return {{"block_m", queries},
          {"block_n", keys},
          {"stages", stages},
          {"num_warps", warps},
          {"bulk", dot ? 1 : 0},
          {"last_keys", has_small_mask(group) ? 1 : 0},
          {"split_keys", parts_of(group, keys, std::min({wanted, values.depth / (kLeastSteps * keys), kMostParts}))},
          {"scheme", kIeee}};
}

// With products of halves a thread holds a step's sums beside those so far: of 64 rows by 256 columns, which four warps
// share, both are all of its registers.
bool sums_in_two_tiles(const LoweredGroup& group, bool halves) {
  return halves && group.product->columns == kWidestHead;
}

int64_t lanes_of_columns(const LoweredGroup& group, bool halves) {
  const int64_t lanes = std::clamp(next_power_of_two(group.product->columns), kLeastBlock, kWidestHead);
  return sums_in_two_tiles(group, halves) ? lanes / 2 : lanes;
}

// What spilt no registers of 14 settings compiled for sm_90 with both sums in two tiles: as many warps as have 16 rows
// each, and no descriptors of the bulk copy engine (156 bytes with them).
Parameters defaults_of_two_tiles(const LoweredGroup& group, const DeviceDescription& device) {
  constexpr int64_t kKeys = 16, kStages = 2, kRowsOfWarp = 16, kHalves = 4;  // two halves of a number are 4 bytes
  const Product& values = *group.product;
  const int64_t feature = next_power_of_two(group.attention->scores->product->depth);
  int64_t queries = std::clamp<int64_t>(next_power_of_two(values.rows), 64, 128);
  const auto bytes = [&] { return kHalves * (queries * feature + kStages * kKeys * (feature + values.columns)); };
  if (values.batches() * ceil_divide(values.rows, queries) < device.units || bytes() > device.operand_bytes())
    queries = 64;
  return {{"block_m", queries},
          {"block_n", kKeys},
          {"stages", bytes() <= device.operand_bytes() ? kStages : 1},
          {"num_warps", queries / kRowsOfWarp},
          {"bulk", 0},
          {"last_keys", has_small_mask(group) ? 1 : 0},
          {"scheme", kFp16x3}};
}

Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  if (group.attention->has_softmax && (group.product->rows <= kFewQueries || is_wide(group)))
    return defaults_of_few_queries(group, device);
  const Product &scores = *group.attention->scores->product, &values = *group.product;
  const bool split = values.right.dtype == DType::f32;  // without a softmax it is not, and takes as many bytes
  if (sums_in_two_tiles(group, split && group.attention->has_softmax)) return defaults_of_two_tiles(group, device);
  const int64_t feature = next_power_of_two(scores.depth), column = next_power_of_two(values.columns),
                widest = std::max(feature, column);
  // Measured on an H100: 16-bit operands and narrow heads like small blocks, several to a multiprocessor.
  const bool small = !split || widest == 64 || widest > 128;
  int64_t queries = std::clamp<int64_t>(next_power_of_two(values.rows), kLeastBlock, small ? 64 : 128);
  // Where they end at the diagonal shorter steps waste less: 1.38 ms for 1.53 of 16 heads of 64 on an H200, 1.49 with
  // three stages.
  const bool short_steps = split && (widest > 128 || (widest <= 64 && is_masked_by_places(*group.attention)));
  int64_t keys = std::clamp<int64_t>(next_power_of_two(values.depth), kLeastBlock, short_steps ? 32 : 64);
  const auto blocks = [&] { return values.batches() * ceil_divide(values.rows, queries); };
  while (blocks() < device.units && queries > 64) queries /= 2;
  const int64_t bytes = 2 * (split ? 2 : 1);
  // Small blocks: two to a multiprocessor.
  const auto stages = [&] {
    return (device.operand_bytes() / (small ? 2 : 1) - queries * feature * bytes) / (keys * (feature + column) * bytes);
  };
  while (stages() < 1 && queries > 64) queries /= 2;
  while (stages() < 1 && keys > kLeastBlock) keys /= 2;
  while (stages() < 1 && queries > kLeastBlock) queries /= 2;
  return {{"block_m", queries},
          {"block_n", keys},
          {"stages", std::clamp<int64_t>(stages(), 1, short_steps && widest <= 64 ? 2 : 3)},
          {"num_warps", queries * widest >= 128 * 128 ? 8 : 4},
          {"bulk", 1},
          {"last_keys", group.attention->has_softmax && has_small_mask(group) ? 1 : 0},
          {"scheme", split && group.attention->has_softmax ? kFp16x3 : kIeee}};
}

std::vector<ParameterRange> space(const LoweredGroup&, const DeviceDescription&) { return takes().ranges(); }

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device) {
  const ParameterTable& table = takes();
  const auto read = [&](std::string_view name) { return table.read(parameters, name); };
  const int64_t queries = read("block_m"), keys = keys_of_step(queries, read("block_n"));
  const bool halves = group.product->right.dtype == DType::f32 && group.attention->has_softmax &&
                      read("scheme") == kFp16x3 && queries >= kLeastBlock;
  return attention_kernels(group, {.queries = queries,
                                   .keys = keys,
                                   .features = std::clamp(next_power_of_two(group.attention->scores->product->depth),
                                                          kLeastBlock, kWidestHead),
                                   .columns = lanes_of_columns(group, halves),
                                   .stages = static_cast<int>(read("stages")),
                                   .warps = static_cast<int>(read("num_warps")),
                                   .parts = parts_of(group, keys, read("split_keys")),
                                   .operand_bytes = device.operand_bytes(),
                                   .last_keys = read("last_keys") != 0,
                                   .bulk = read("bulk") != 0,
                                   .halves = halves});
}

}  // namespace

const Scheduler kAttentionScheduler{"attention", GroupWork::kProducts, can_take, takes, defaults, space, lower};

}  // namespace kw::plan
