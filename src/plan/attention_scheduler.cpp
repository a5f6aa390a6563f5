// Attention: scores, softmax and the weighted sum of values in one kernel that walks the keys once, with what follows
// it element by element.
//
// 16-bit operands are multiplied as they are; those in single precision are split into halves first, as contractions'
// are (contraction.cpp). Weights are split where they are computed.
#include <algorithm>

#include "plan/attention_kernels.hpp"

namespace kw::plan {

namespace {

enum SchemeChoice : int64_t { kIeee = 0, kFp16x3 = 1 };

constexpr int64_t kLeastBlock = 16;  // of a dot in Triton

bool can_take(const LoweredGroup& group) { return group.attention.has_value(); }

const ParameterTable& takes() {
  static const ParameterTable table({
      {.name = "block_m", .least = 16, .most = 256, .unsaid = 128, .powers_of_two = true, .tried = {64, 128}},
      {.name = "block_n", .least = 16, .most = 256, .unsaid = 64, .powers_of_two = true, .tried = {32, 64, 128}},
      {.name = "stages", .least = 1, .most = 8, .unsaid = 2, .powers_of_two = false, .tried = {1, 2, 3}},
      {.name = "num_warps", .least = 1, .most = 16, .unsaid = 8, .powers_of_two = true, .tried = {4, 8}},
      {.name = "bulk", .least = 0, .most = 1, .unsaid = 1, .powers_of_two = false, .tried = {0, 1}},
      {.name = "scheme", .least = kIeee, .most = kFp16x3, .unsaid = kFp16x3, .powers_of_two = false, .tried = {}},
  });
  return table;
}

Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  const Product &scores = *group.attention->scores->product, &values = *group.product;
  const bool split = values.right.dtype == DType::f32;  // without a softmax it is not, and takes as many bytes
  const int64_t feature = next_power_of_two(scores.depth), column = next_power_of_two(values.columns),
                widest = std::max(feature, column);
  // Measured on an H100: 16-bit operands and narrow heads like small blocks, several to a multiprocessor.
  const bool small = !split || widest == 64 || widest > 128;
  int64_t queries = std::clamp<int64_t>(next_power_of_two(values.rows), kLeastBlock, small ? 64 : 128);
  int64_t keys = std::clamp<int64_t>(next_power_of_two(values.depth), kLeastBlock, split && widest > 128 ? 32 : 64);
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
          {"stages", std::clamp<int64_t>(stages(), 1, 3)},
          {"num_warps", queries * widest >= 128 * 128 ? 8 : 4},
          {"bulk", 1},
          {"scheme", split && group.attention->has_softmax ? kFp16x3 : kIeee}};
}

std::vector<ParameterRange> space(const LoweredGroup&, const DeviceDescription&) { return takes().ranges(); }

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device) {
  const ParameterTable& table = takes();
  const auto read = [&](std::string_view name) { return table.read(parameters, name); };
  const auto lanes = [](int64_t extent) { return std::max(next_power_of_two(extent), kLeastBlock); };
  return attention_kernels(group, {.queries = read("block_m"),
                                   .keys = read("block_n"),
                                   .features = lanes(group.attention->scores->product->depth),
                                   .columns = lanes(group.product->columns),
                                   .stages = static_cast<int>(read("stages")),
                                   .warps = static_cast<int>(read("num_warps")),
                                   .operand_bytes = device.operand_bytes(),
                                   .bulk = read("bulk") != 0,
                                   .halves = group.product->right.dtype == DType::f32 && group.attention->has_softmax &&
                                             read("scheme") == kFp16x3});
}

}  // namespace

const Scheduler kAttentionScheduler{"attention", GroupWork::kProducts, can_take, takes, defaults, space, lower};

}  // namespace kw::plan
