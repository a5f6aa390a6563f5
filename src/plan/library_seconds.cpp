#include "plan/library_seconds.hpp"

#include <algorithm>

namespace kw {
namespace {

// What the library reaches of the roofline's rate with convolutions of one tap.
constexpr double kLibraryShare = 0.92;
// Of others, of the rate of products of halves: in TF32, between conversions of the layout, and in 16 bits.
constexpr double kLibraryShareOfConvolutions = 0.13, kLibraryShareIn16Bits = 0.35;
constexpr double kLibraryShareOfOneTap = 0.2;  // in TF32, where the layout stays: 138 GFLOP took 0.78 ms on an H100
constexpr double kLibraryShareOfMemory = 0.4, kLibraryShareDepthwise = 0.2;  // in those with several taps
constexpr double kLibraryShareInterleaved = 0.15;  // in transposed ones with stride: 848 MB take 1.6 ms on an H200
// Tensor cores multiply TF32 half as fast as halves, whose rate is one that power limits.
constexpr double kTf32OverHalves = 0.6;
// Of those in groups, a kernel for each, on an H100: 0.1 GFLOP took 47 µs, 3.2 GFLOP 270.
constexpr double kLibrarySecondsOfGroup = 40e-6, kLibraryShareOfGroups = 0.2;

}  // namespace

double LibrarySeconds::rate_of(DType dtype, bool rounded) const {
  if (dtype == DType::f32)
    return rounded ? std::max(device_.fp32_flops, kTf32OverHalves * device_.half_flops) : device_.fp32_flops;
  if (device_.half_flops > 0) return device_.half_flops;
  return (dtype == DType::bf16 ? rates_.bf16 : rates_.f16) * device_.fp32_flops;
}

double LibrarySeconds::seconds(const plan::Product& product) const {
  double bytes = 0;
  for_each_operand(graph_.nodes[product.node],
                   [&](ValueId operand) { bytes += static_cast<double>(graph_.type(operand).bytes()); });
  bytes += static_cast<double>(graph_.type(product.result).bytes());
  // Of very few they have smaller tiles.
  const auto made = [&](int64_t extent) {
    const int64_t tile = std::min(rates_.tile, 8 * extent);
    return static_cast<double>(plan::ceil_divide(extent, tile) * tile) / static_cast<double>(extent);
  };
  const bool tiles = product.left.dtype == DType::f32 && std::min(product.rows, product.columns) > 1;
  const double flops = product.flops() * (tiles ? made(product.rows) * made(product.columns) : 1.0);
  const double elements = static_cast<double>(product.batches()) * static_cast<double>(product.columns * product.depth);
  const double layout = tiles ? elements * rates_.seconds_of_element / static_cast<double>(device_.units) : 0;
  return device_.launch_seconds +
         std::max(flops / (rates_.products * rate_of(product.left.dtype, product.rounded)) + layout,
                  bytes / device_.copy_bytes_per_second);
}

double LibrarySeconds::seconds_of_attention(const Node& node) const {
  const TensorType &query = graph_.type(node.value("query")), &key = graph_.type(node.value("key")),
                   &value = graph_.type(node.value("value"));
  if (query.rank() < 2 || key.rank() < 2 || value.rank() < 2) return 0;
  const double scores = static_cast<double>(query.elements()) / static_cast<double>(query.shape.back()) *
                        static_cast<double>(key.shape[key.rank() - 2]);
  const double flops = scores *
                       (2 * static_cast<double>(query.shape.back() + value.shape.back()) + rates_.flops_of_score);
  const double share = query.dtype == DType::f32             ? rates_.single_attention
                       : node.value("attn_mask") == kNoValue ? rates_.halves_attention
                                                             : rates_.masked_attention;
  const double rate = query.dtype == DType::f32 || device_.half_flops <= 0 ? device_.fp32_flops : device_.half_flops;
  const double seconds = flops / (share * rate);
  if (rates_.attention_rows == 0) return device_.launch_seconds + seconds;
  // Of few queries it is bound by reading keys and values: in 16 bits by all units; in single precision by those that
  // have a block of queries, of which most may be empty. Heads that share keys have them repeated in memory there.
  double bytes = static_cast<double>(key.bytes() + value.bytes());
  // Its kernels for 16 bits that share out keys have heads of up to kWidestHead.
  if (query.dtype != DType::f32 && std::max(query.shape.back(), value.shape.back()) <= plan::kWidestHead)
    return device_.launch_seconds + std::max(seconds, bytes / device_.copy_bytes_per_second);
  const int64_t rows = query.shape[query.rank() - 2], blocks = plan::ceil_divide(rows, rates_.attention_rows),
                heads = query.elements() / std::max<int64_t>(rows * query.shape.back(), 1);
  const double padded = static_cast<double>(blocks * rates_.attention_rows) /
                        static_cast<double>(std::max<int64_t>(rows, 1));
  const double busy = std::min(1.0, static_cast<double>(heads * blocks) / static_cast<double>(device_.units));
  if (node.boolean("enable_gqa", false) && query.rank() > 2)
    bytes *= 1 + 2 * static_cast<double>(query.shape[query.rank() - 3]) /
                     static_cast<double>(std::max<int64_t>(key.shape[key.rank() - 3], 1));
  return device_.launch_seconds + std::max(seconds * padded, bytes / device_.copy_bytes_per_second) / busy;
}

double LibrarySeconds::seconds(const plan::Convolution& convolution) const {
  const plan::Product product = convolution.product();
  const auto stored = static_cast<double>(graph_.type(convolution.result).bytes());
  const double bias = convolution.bias && rates_.adds_bias
                          ? device_.launch_seconds + 2 * stored / device_.copy_bytes_per_second
                          : 0;
  if (convolution.is_grouped() && convolution.image.dtype == DType::f32)
    return bias + static_cast<double>(convolution.groups) * kLibrarySecondsOfGroup +
           product.flops() / (kLibraryShareOfGroups * device_.fp32_flops);
  const double bytes = stored + static_cast<double>(graph_.type(graph_.nodes[convolution.node].value("input")).bytes());
  if (convolution.is_direct() && rates_.depthwise_products > 0)
    return bias + device_.launch_seconds + rates_.small_depthwise +
           product.flops() / (rates_.depthwise_products * device_.fp32_flops) +
           bytes / (kLibraryShareDepthwise * device_.copy_bytes_per_second);
  const double share_of_tf32 = convolution.taps() == 1 ? kLibraryShareOfOneTap : kLibraryShareOfConvolutions;
  const double rate = convolution.exact                       ? rates_.exact_convolutions * device_.fp32_flops
                      : convolution.image.dtype == DType::f32 ? share_of_tf32 * device_.half_flops
                                                              : kLibraryShareIn16Bits * device_.half_flops;
  const double share = convolution.channels == 1  ? kLibraryShareDepthwise
                       : convolution.phases() > 1 ? kLibraryShareInterleaved
                       : convolution.taps() == 1  ? kLibraryShare
                                                  : kLibraryShareOfMemory;
  const double arithmetic = product.flops() / rate;
  return bias + device_.launch_seconds + rates_.small_convolution +
         std::max(arithmetic + std::min(arithmetic, rates_.more_of_convolution),
                  bytes / (share * device_.copy_bytes_per_second));
}

double LibrarySeconds::seconds(const plan::Recurrence& recurrence) const {
  const double rate = recurrence.exact                 ? device_.fp32_flops
                      : recurrence.dtype == DType::f32 ? std::max(device_.fp32_flops, device_.half_flops / 2)
                                                       : device_.half_flops;
  const StepRates& own = recurrence.projected > 0                   ? rates_.projected
                         : recurrence.kind == plan::CellKind::kLstm ? rates_.lstm
                         : recurrence.kind == plan::CellKind::kGru  ? rates_.gru
                                                                    : rates_.rnn;
  const double steps = static_cast<double>(recurrence.steps * recurrence.cell_count()) *
                       (own.step + static_cast<double>(recurrence.batch * recurrence.hidden) * own.unit);
  const double products = recurrence.flops() / (rates_.recurrences * rate);
  return rates_.is_launched ? std::max(steps, products) : steps + products;
}

}  // namespace kw
