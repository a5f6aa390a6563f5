// Contractions on a CPU: a thread takes a block of the result, and walks the depth a step at a time. Products are sums
// in f32; what follows them is computed while the block is in a core's cache.
#include "plan/contraction_kernels.hpp"

#include <algorithm>

#include "plan/product_lowering.hpp"
#include "targets/cpu/cost.hpp"
#include "targets/cpu/schedulers.hpp"

namespace kw::cpu {

using namespace plan;

namespace {

constexpr int64_t kLeastSide = 16;        // what is narrower is no product of tiles (lower/values.cpp)
constexpr int64_t kColumnsTogether = 16;  // floats of the widest SIMD registers, of which columns of products are
                                          // multiples
// Measured: a step's columns, as many as add_product keeps sums of in registers, then stay in a core's nearest cache.
constexpr int64_t kPanel = 16, kPanelOfAvx512 = 64;
constexpr int64_t kMostRows = 256, kMostDepth = 512;
constexpr int64_t kLeastRows = 64;           // of which columns are worth laying out anew for the product
constexpr int64_t kLeastBlocksOfCore = 4;    // so that cores end at about the same time
constexpr int64_t kMostOfBlock = 256 * 256;  // results, where every block has whole rows

int64_t in_whole_vectors(int64_t extent) { return ceil_divide(extent, kColumnsTogether) * kColumnsTogether; }

const ParameterTable& block_sizes() {
  static const ParameterTable table({
      {.name = "block_columns", .least = kLeastSide, .most = 1024, .unsaid = kPanel, .tried = {16, 32, 64, 128}},
      {.name = "block_depth", .least = kLeastSide, .most = 1024, .unsaid = kMostDepth, .tried = {128, 256, 512}},
      {.name = "block_rows", .least = kLeastSide, .most = 1024, .unsaid = kMostRows, .tried = {64, 128, 256, 512}},
  });
  return table;
}

bool is_contraction(const LoweredGroup& group) {
  return group.product && !group.attention && !group.linear_attention && !group.convolution &&
         group.product->left.dtype == DType::f32 && (!folds(group.kernel) || can_have_whole_rows(group));
}

// The largest block up to `most`, of whole `unit`s, that divides the extent; if there is none of half `most` or more,
// blocks of about equal size.
int64_t fitting_block(int64_t extent, int64_t most, int64_t unit) {
  for (int64_t block = std::min(most, extent) / unit * unit; block > 0 && 2 * block >= std::min(most, extent);
       block -= unit)
    if (extent % block == 0) return block;
  return ceil_divide(ceil_divide(extent, ceil_divide(extent, most)), unit) * unit;
}

Parameters default_sizes(const LoweredGroup& group, const DeviceDescription& device) {
  const Product& product = *group.product;
  int64_t rows = kMostRows, columns = device.vector_bytes >= kVectorBytesOfAvx512 ? kPanelOfAvx512 : kPanel;
  const auto block_rows = [&] { return fitting_block(product.rows, rows, 1); };
  const auto block_columns = [&] { return fitting_block(product.columns, columns, kColumnsTogether); };
  const auto is_few = [&] {
    return product.batches() * ceil_divide(product.rows, block_rows()) * ceil_divide(product.columns, block_columns()) <
           kLeastBlocksOfCore * device.units;
  };
  while (is_few() && columns > kColumnsTogether) columns /= 2;
  while (is_few() && rows > kLeastRows) rows /= 2;
  return {{"block_columns", std::max(block_columns(), kLeastSide)},
          {"block_depth", std::max(fitting_block(product.depth, kMostDepth, 1), kLeastSide)},
          {"block_rows", std::max(block_rows(), kLeastSide)}};
}

std::vector<ParameterRange> space_of_contraction(const LoweredGroup& group, const DeviceDescription&) {
  std::vector<ParameterRange> ranges = block_sizes().ranges();
  const Product& product = *group.product;
  for (ParameterRange& range : ranges) {
    const int64_t extent = range.name == "block_rows"      ? product.rows
                           : range.name == "block_columns" ? product.columns
                                                           : product.depth;
    // Blocks that are larger than what they are of are one and the same.
    std::erase_if(range.values, [&](int64_t width) { return width >= 2 * std::max(extent, kLeastSide); });
    if (range.name == "block_columns" && folded_dimension(group)) range.values = {in_whole_vectors(product.columns)};
  }
  return ranges;
}

ScheduledGroup lower_contraction(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device) {
  const Product& product = *group.product;
  Parameters sizes = parameters;
  sizes.merge(default_sizes(group, device));  // of those that the schedule leaves out
  const auto width = [&](std::string_view name, int64_t extent) {
    return std::min(block_sizes().read(sizes, name), std::max(extent, kLeastSide));
  };
  ContractionBlocks chosen{.rows = width("block_rows", product.rows),
                           .columns = width("block_columns", in_whole_vectors(product.columns)),
                           .depth = width("block_depth", product.depth),
                           .stages = 0,
                           .warps = 1,
                           .bulk = false,
                           .halves = false,
                           .streamed = {}};
  chosen.whole_rows = folded_dimension(group).has_value();
  if (chosen.whole_rows) {
    chosen.columns = in_whole_vectors(product.columns);
    chosen.rows = std::clamp(kMostOfBlock / chosen.columns, kLeastSide, chosen.rows);
  }
  return contraction_kernels(group, chosen);
}

}  // namespace

const Scheduler& contraction_scheduler() {
  static const Scheduler scheduler{
      kContractionScheduler.name, GroupWork::kProducts, is_contraction, block_sizes, default_sizes,
      space_of_contraction,       lower_contraction};
  return scheduler;
}

}  // namespace kw::cpu
