// Attention on a CPU: a thread takes a block of queries and walks the keys once. All products are sums in f32.
#include "plan/attention_kernels.hpp"

#include <algorithm>

#include "targets/cpu/schedulers.hpp"

namespace kw::cpu {

using namespace plan;

namespace {

constexpr int64_t kLeastBlock = 16;  // what is narrower is no product of tiles (lower/values.cpp)
constexpr int64_t kVector = 16;      // floats of the widest SIMD registers, of which columns of products are multiples
constexpr int64_t kVectorOfBytes = 64;
// Measured with 32 to 128 features: a block's scores then stay in a core's cache. Up to kKeysAtOnce keys are folded in
// one step, which rescales nothing.
constexpr int64_t kMostQueries = 256, kMostKeys = 128, kKeysAtOnce = 256;
constexpr int64_t kMostCausalQueries = 128;  // smaller blocks leave out more of what is masked
constexpr int64_t kBlocksOfCore = 2;         // at least, so that cores end at about the same time

int64_t in_vectors(int64_t extent, int64_t vector = kVector) { return ceil_divide(extent, vector) * vector; }

const ParameterTable& blocks() {
  static const ParameterTable table({
      {.name = "keys", .least = kLeastBlock, .most = 1024, .unsaid = kMostKeys, .tried = {64, 128, 256}},
      {.name = "queries", .least = kLeastBlock, .most = 1024, .unsaid = kMostQueries, .tried = {32, 64, 128, 256}},
  });
  return table;
}

bool is_attention(const LoweredGroup& group) { return group.attention.has_value(); }

// Blocks of about equal size, none larger than `most`.
int64_t even_block(int64_t extent, int64_t most) { return ceil_divide(extent, ceil_divide(extent, most)); }

// The largest block of whole vectors up to `most` that divides the extent; 0 if there is none of half `most` or more.
int64_t dividing_block(int64_t extent, int64_t most) {
  for (int64_t block = most; 2 * block >= most; block -= kVector)
    if (extent % block == 0) return block;
  return 0;
}

Parameters default_blocks(const LoweredGroup& group, const DeviceDescription& device) {
  const Product& values = *group.product;
  const bool causal = group.attention->is_causal;
  int64_t most = causal ? kMostCausalQueries : kMostQueries;
  while (most > 2 * kVector && values.batches() * ceil_divide(values.rows, most) < kBlocksOfCore * device.units)
    most /= 2;
  if (causal && values.depth > most) {
    // Loops over keys end at the diagonal where blocks divide both axes.
    const int64_t queries = dividing_block(values.rows, most), keys = dividing_block(values.depth, kMostKeys);
    if (queries > 0 && keys > 0) return {{"keys", keys}, {"queries", queries}};
  }
  const int64_t keys = even_block(values.depth, values.depth <= kKeysAtOnce ? kKeysAtOnce : kMostKeys);
  const auto& mask = group.attention->mask;
  // Truths of a mask are bytes.
  const int64_t vector = mask && mask->dtype == DType::b1 ? kVectorOfBytes : kVector;
  return {{"keys", in_vectors(keys, vector)}, {"queries", std::max(even_block(values.rows, most), kLeastBlock)}};
}

std::vector<ParameterRange> space_of_attention(const LoweredGroup&, const DeviceDescription&) {
  return blocks().ranges();
}

ScheduledGroup lower_blocks(LoweredGroup group, const Parameters& parameters, const DeviceDescription&) {
  const Product &scores = *group.attention->scores->product, &values = *group.product;
  // One query is multiplied with keys and values as they lie.
  const int64_t rows = values.rows == 1 ? 1 : std::max(values.rows, kLeastBlock);
  return attention_kernels(
      group, {.queries = std::min(blocks().read(parameters, "queries"), rows),
              .keys = std::min(blocks().read(parameters, "keys"), in_vectors(values.depth, kVectorOfBytes)),
              .features = std::max(scores.depth, kLeastBlock),
              .columns = in_vectors(values.columns)});
}

}  // namespace

const Scheduler& attention_scheduler() {
  static const Scheduler scheduler{kAttentionScheduler.name, GroupWork::kProducts, is_attention, blocks,
                                   default_blocks,           space_of_attention,   lower_blocks};
  return scheduler;
}

}  // namespace kw::cpu
