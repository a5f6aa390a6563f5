// Convolutions on a CPU: depthwise ones as sums over taps (plan/depthwise_kernels.hpp), those of three by three taps by
// fewer multiplications (plan/winograd_kernels.hpp). A thread takes a block of places with all their filters, or some,
// so that what it makes of the image stays in a core's cache.
#include <algorithm>
#include <utility>

#include "plan/depthwise_kernels.hpp"
#include "plan/winograd_kernels.hpp"
#include "targets/cpu/schedulers.hpp"

namespace kw::cpu {

using namespace plan;

namespace {

constexpr int64_t kLeastOfProduct = 16;  // what is narrower is no product of tiles (lower/values.cpp)
// Measured: forms of the image and sums of products stay in a core's own cache.
constexpr int64_t kFiltersOfBlock = 256, kChannelsOfStep = 64, kPlacesOfBlock = 32;
constexpr int64_t kChannelsAtOnce = 128;  // so many are one step
constexpr int64_t kLeastBlocks = 4;       // so that cores end at about the same time

const ParameterTable& winograd_blocks() {
  static const ParameterTable table({
      {.name = "block_channels",
       .least = kLeastOfProduct,
       .most = 1024,
       .unsaid = kChannelsOfStep,
       .tried = {32, 64, 128, 256}},
      {.name = "block_filters",
       .least = kLeastOfProduct,
       .most = 1024,
       .unsaid = kFiltersOfBlock,
       .tried = {64, 128, 256}},
      {.name = "block_places", .least = kLeastOfProduct, .most = 256, .unsaid = kPlacesOfBlock, .tried = {16, 32, 64}},
  });
  return table;
}

bool takes_convolution(const LoweredGroup& group) {
  if (can_sum_taps(group)) return true;
  return can_use_winograd(group) &&
         std::min(group.convolution->channels, group.convolution->filters) >= kLeastOfProduct;
}

// The largest block up to `most` that divides the extent, if there is one of half `most` or more.
int64_t whole_block(int64_t extent, int64_t most) {
  for (int64_t block = std::min(extent, most); 2 * block >= std::min(extent, most); --block)
    if (extent % block == 0) return block;
  return std::min(extent, most);
}

Parameters sizes_of_blocks(const LoweredGroup& group, const DeviceDescription& device) {
  const Convolution& one = *group.convolution;
  if (one.is_direct()) return {};
  const int64_t channels = one.channels <= kChannelsAtOnce ? one.channels : whole_block(one.channels, kChannelsOfStep),
                filters = whole_block(one.filters, kFiltersOfBlock);
  const int64_t blocks = one.samples * ceil_divide(winograd_places(one), kPlacesOfBlock) *
                         ceil_divide(one.filters, filters);
  const bool is_few = blocks < kLeastBlocks * device.units;
  return {{"block_channels", std::max(channels, kLeastOfProduct)},
          {"block_filters", std::max(filters, kLeastOfProduct)},
          {"block_places", is_few ? kPlacesOfBlock / 2 : kPlacesOfBlock}};
}

std::vector<ParameterRange> space_of_convolution(const LoweredGroup& group, const DeviceDescription&) {
  return group.convolution->is_direct() ? std::vector<ParameterRange>{} : winograd_blocks().ranges();
}

ScheduledGroup lower_convolution(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device) {
  if (group.convolution->is_direct()) return depthwise_kernels(group);
  Parameters sizes = parameters;
  sizes.merge(sizes_of_blocks(group, device));  // of those that the schedule leaves out
  const LoweredGroup taken = std::move(group);
  return winograd_kernels(taken, {.filters = winograd_blocks().read(sizes, "block_filters"),
                                  .channels = winograd_blocks().read(sizes, "block_channels"),
                                  .places = winograd_blocks().read(sizes, "block_places")});
}

}  // namespace

const Scheduler& convolution_scheduler() {
  static const Scheduler scheduler{
      kConvolutionScheduler.name, GroupWork::kProducts, takes_convolution, winograd_blocks, sizes_of_blocks,
      space_of_convolution,       lower_convolution};
  return scheduler;
}

}  // namespace kw::cpu
