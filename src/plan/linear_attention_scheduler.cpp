// Linear attention: blocks sum up keys and values to a small matrix for each head, and others multiply queries by it.
//
// What makes keys and queries of memory (a feature map) is computed where they are read, so no row is known before it
// is multiplied, and nothing can be scaled: products in single precision are six of three bf16 numbers for each
// operand, which have the range of f32.
#include <algorithm>

#include "plan/linear_attention_kernels.hpp"

namespace kw::plan {

namespace {

enum SchemeChoice : int64_t { kIeee = 0, kBf16x6 = 1 };

constexpr int64_t kMostParts = 64;

bool can_take(const LoweredGroup& group) { return group.linear_attention.has_value(); }

const ParameterTable& takes() {
  static const ParameterTable table({
      {.name = "block_m", .least = 16, .most = 256, .unsaid = 64, .powers_of_two = true, .tried = {64, 128}},
      {.name = "block_n", .least = 16, .most = 256, .unsaid = 64, .powers_of_two = true, .tried = {32, 64, 128}},
      {.name = "stages", .least = 1, .most = 8, .unsaid = 2, .powers_of_two = false, .tried = {1, 2, 3}},
      {.name = "num_warps", .least = 1, .most = 16, .unsaid = 4, .powers_of_two = true, .tried = {4, 8}},
      {.name = "split_keys",
       .least = 1,
       .most = kMostParts,
       .unsaid = 1,
       .powers_of_two = false,
       .tried = {1, 2, 4, 8, 16}},
      {.name = "scheme",
       .least = kIeee,
       .most = kBf16x6,
       .unsaid = kBf16x6,
       .powers_of_two = false,
       .tried = {kIeee, kBf16x6}},
  });
  return table;
}

// Parts are whole steps, and none of them is empty. Where there are not much fewer, all have as many.
int64_t parts_of(int64_t keys, int64_t step, int64_t wanted) {
  const int64_t steps = ceil_divide(keys, step), most = std::clamp<int64_t>(wanted, 1, std::min(steps, kMostParts));
  for (int64_t parts = most; 2 * parts > most; --parts)
    if (keys % (parts * step) == 0) return parts;
  return ceil_divide(steps, ceil_divide(steps, most));
}

// Blocks until there are several to a multiprocessor, of no fewer than so many steps. In single precision steps of 32
// keys take 164 registers where those of 64 take 252 (heads of 64, compiled for sm_90): three blocks fit for two.
Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  constexpr int64_t kBlocksOfUnit = 8, kLeastSteps = 4;
  const LinearAttention& one = *group.linear_attention;
  const bool wide = std::max(one.rows, one.columns) > 64, single = group.product->left.dtype == DType::f32;
  const int64_t keys = std::clamp<int64_t>(next_power_of_two(one.keys), 16, wide || single ? 32 : 64),
                wanted = std::min(ceil_divide(kBlocksOfUnit * device.units, group.product->batches()),
                                  one.keys / (kLeastSteps * keys));
  return {{"block_m", std::clamp<int64_t>(next_power_of_two(group.product->rows), 16, 64)},
          {"block_n", keys},
          {"stages", 2},
          {"num_warps", wide ? 8 : 4},
          {"split_keys", parts_of(one.keys, keys, wanted)},
          {"scheme", kBf16x6}};
}

std::vector<ParameterRange> space(const LoweredGroup& group, const DeviceDescription&) {
  std::vector<ParameterRange> ranges = takes().ranges();
  if (group.product->left.dtype != DType::f32)
    for (ParameterRange& range : ranges)
      if (range.name == "scheme") range.values = {kBf16x6};
  return ranges;
}

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription&) {
  const ParameterTable& table = takes();
  const auto read = [&](std::string_view name) { return table.read(parameters, name); };
  const int64_t keys = read("block_n");
  return linear_attention_kernels(group, {.queries = read("block_m"),
                                          .keys = keys,
                                          .parts = parts_of(group.linear_attention->keys, keys, read("split_keys")),
                                          .stages = static_cast<int>(read("stages")),
                                          .warps = static_cast<int>(read("num_warps")),
                                          .six_products = read("scheme") == kBf16x6});
}

}  // namespace

const Scheduler kLinearAttentionScheduler{
    "linear_attention", GroupWork::kProducts, can_take, takes, defaults, space, lower};

}  // namespace kw::plan
