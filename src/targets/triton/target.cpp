#include "targets/triton/target.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "emit/target_printer.hpp"
#include "emit/triton/python_names.hpp"
#include "judge/environment.hpp"
#include "lower/address_sums.hpp"
#include "lower/block_numbers.hpp"
#include "lower/coherent_loads.hpp"
#include "lower/consumers.hpp"
#include "lower/counted_down.hpp"
#include "lower/index_names.hpp"
#include "lower/index_widths.hpp"
#include "lower/lane_dimensions.hpp"
#include "lower/masks.hpp"
#include "lower/matrix_order.hpp"
#include "lower/numerics.hpp"
#include "lower/pipeline.hpp"
#include "lower/sort_ways.hpp"
#include "lower/tile_folds.hpp"
#include "plan/concatenation.hpp"
#include "plan/convolutions_again.hpp"
#include "plan/join_linear_attention.hpp"
#include "plan/join_products.hpp"
#include "support/error.hpp"
#include "support/json_fields.hpp"
#include "targets/triton/cost.hpp"
#include "targets/triton/language.hpp"
#include "targets/triton/meanings.hpp"
#include "targets/triton/schedulers.hpp"

namespace kw {

namespace {

constexpr int kHopper = 90, kTensorCores = 70;  // compute capabilities; GPUs have tensor cores from the second on

// Is it a version of Triton whose Gluon is the one that kernels with consumers are printed for (3.6 or later)?
bool knows_roles(std::string_view version) {
  int major = 0, minor = 0;
  return std::sscanf(std::string(version).c_str(), "%d.%d", &major, &minor) == 2 &&
         (major > 3 || (major == 3 && minor >= 6));
}

constexpr lower::TargetStep kSteps[] = {
    {"numerics", [](lower::Lowered& lowered) { lower::decide_numerics(lowered.program); }},
    {"masks", [](lower::Lowered& lowered) { lower::find_unseen_otherwise(lowered.program); }},
    {"coherent-loads", [](lower::Lowered& lowered) { lower::make_loads_coherent(lowered.program); }},
    {"sorts", [](lower::Lowered& lowered) { lower::choose_ways_of_sorts(lowered.program); }},
    {"consumers", [](lower::Lowered& lowered) { lower::decide_consumers(lowered.program); }},
    {"number-blocks", [](lower::Lowered& lowered) { lower::number_blocks_of_gpu(lowered.program); }},
    {"python-names", [](lower::Lowered& lowered) { triton::give_python_names(lowered.program); }},
    {"name-indices", [](lower::Lowered& lowered) { lower::name_indices(lowered.program); }},
    {"order-sums", [](lower::Lowered& lowered) { lower::order_sums(lowered.program); }},
    {"index-widths", [](lower::Lowered& lowered) { lower::choose_index_widths(lowered.program); }},
    {"lane-dimensions", [](lower::Lowered& lowered) { lower::give_dimensions(lowered.program); }},
    {"matrix-order", [](lower::Lowered& lowered) { lower::put_left_matrices_first(lowered.program); }},
    {"tile-folds", [](lower::Lowered& lowered) { lower::choose_folds_of_tiles(lowered.program); }},
    {"count-down", [](lower::Lowered& lowered) { lower::count_reversed_loops(lowered.program); }},
};

// What a program sorts on chip faster than the library sorts in memory; and picks, a few largest one after the other.
// On an H200 over PyTorch: rows of 64 floats 7.5 times, of 512 1.7, of 1024 0.6; the 50 largest of 2048 0.8, 16 of
// 16,384 1.3. Elements of 64 bits leave no room beside them for their places.
constexpr SortForms kSortForms{
    .longest = 512, .longest_of_few = 16384, .few = 16, .places_of_wide = false, .picks_one_by_one = true};

constexpr GraphForms kGraphForms{.sorts = kSortForms,
                                 .wide_heads_as_products = true,
                                 .attention_shares_heads = true,
                                 .convolutions_make_statistics = true,
                                 .draws_masks = true};

class TritonTarget : public Target {
 public:
  std::string_view name() const override { return "triton"; }
  std::string_view tensors() const override { return "cuda"; }
  std::string_view usual_size() const override { return "full"; }
  std::string_view description() const override { return "an NVIDIA GPU"; }

  DeviceDescription default_device() const override {
    DeviceDescription device;
    device.target = this;
    device.name = "NVIDIA H200";
    device.units = 132;
    device.cache_bytes = 50 << 20;
    device.unit_cache_bytes = 256 << 10;
    device.shared_bytes = 227 << 10;
    device.warp_roles = true;
    device.vector_bytes = 16;
    device.copy_bytes_per_second = 4.3e12;
    device.fp32_flops = 51e12;
    device.half_flops = 650e12;
    // Products of f32 by three of halves: 251 to 257 TFLOP/s of 4096^3, 217 to 224 of 8192^3.
    device.sustained_share = 0.86;
    device.launch_seconds = 2.5e-6;
    return device;
  }

  void look_at(DeviceDescription& device, const Environment& environment,
               const nlohmann::ordered_json& card) const override {
    if (std::string name = text_of(card, "name"); !name.empty()) device.name = std::move(name);
    if (const double units = figure_of(card, "multiprocessors").value_or(0); units > 0)
      device.units = static_cast<int64_t>(units);
    if (const double cache = figure_of(card, "l2_bytes").value_or(0); cache > 0)
      device.cache_bytes = static_cast<int64_t>(cache);
    if (const double shared = figure_of(card, "shared_bytes").value_or(0); shared > 0)
      device.shared_bytes = static_cast<int64_t>(shared);
    const double capability = figure_of(card, "sm").value_or(0);
    if (capability > 0 && capability < kTensorCores) device.half_flops = 0;
    if (capability > 0) device.warp_roles = capability == kHopper && knows_roles(environment.triton_version);
  }

  bool can_run(const Environment& environment) const override {
    return environment.has_gpu() && !environment.triton_version.empty();
  }

  void need_device(const Environment& environment) const override {
    if (environment.driver_version.empty())
      throw Error(
          ErrorKind::kMissing,
          ErrorText{.message = "--target triton needs an NVIDIA GPU, and this machine has none (no driver is loaded).",
                    .where = "",
                    .source = "",
                    .hint = "Use --target cpu, or add --emit-only to write the file without running it.",
                    .detail = "",
                    .code = "no-gpu"});
    if (environment.gpus_hidden)
      throw Error(
          ErrorKind::kMissing,
          ErrorText{
              .message = "--target triton needs an NVIDIA GPU, and CUDA_VISIBLE_DEVICES hides all of this machine's.",
              .where = "",
              .source = "",
              .hint = "Unset CUDA_VISIBLE_DEVICES or name a GPU in it, or use --target cpu.",
              .detail = "",
              .code = "no-gpu"});
    if (environment.torch_cuda.empty())
      throw Error(ErrorKind::kMissing,
                  ErrorText{.message = "--target triton needs a PyTorch with CUDA; " + environment.python + " has " +
                                       environment.torch_version + ", a CPU build.",
                            .where = "",
                            .source = "",
                            .hint = "Install PyTorch's CUDA build, or use --target cpu.",
                            .detail = "",
                            .code = "no-cuda-torch"});
    if (environment.triton_version.empty())
      throw Error(ErrorKind::kMissing,
                  ErrorText{.message = "--target triton needs Triton, which " + environment.python + " does not have.",
                            .where = "",
                            .source = "",
                            .hint = environment.python + " -m pip install triton",
                            .detail = "",
                            .code = "no-triton"});
  }

  BuildCommand build_command() const override { return {.one_by_one = true}; }
  int absent_capability(const Environment& environment) const override {
    return environment.triton_version.empty() ? 0 : kHopper;
  }

  GraphForms graph_forms() const override { return kGraphForms; }

  const std::vector<plan::Scheduler>& schedulers() const override {
    static const std::vector<plan::Scheduler> table = {
        triton::kPointwiseScheduler, triton::kScanScheduler,      triton::kBagScheduler,
        triton::kSlidingScheduler,   triton::kReductionScheduler, triton::kNormalisationScheduler,
        plan::kContractionScheduler, plan::kAttentionScheduler,   plan::kLinearAttentionScheduler,
        plan::kConvolutionScheduler, plan::kRecurrenceScheduler};
    return table;
  }

  void join_groups(const Graph& graph, Schedule& schedule, const DeviceDescription& device) const override {
    if (device.half_flops <= 0) return;
    // Kernels are compared with the library's, whose long products power limits alike: both at the rate of short ones.
    DeviceDescription cool = device;
    cool.sustained_share = 1;
    schedule = join_linear_attention(graph, std::move(schedule), cool);
    Schedule joined = join_products(graph, schedule, cool);
    schedule = with_concatenations_in_place(graph, schedule, std::move(joined), cool);
    schedule = with_convolutions_again(graph, std::move(schedule), cool);
  }

  std::span<const lower::TargetStep> lowering_steps() const override { return kSteps; }

  KernelEstimate estimate(const tile::Program& program, const DeviceDescription& device) const override {
    return triton::estimate_of(program, device);
  }

  std::unique_ptr<TargetPrinter> printer() const override { return make_triton_printer(); }
  bool has_cuda_graphs() const override { return true; }

  bool profiler_sees_kernels() const override { return true; }
  std::string_view meaning_of(std::string_view parameter) const override { return triton::meaning_of(parameter); }
  const KernelLanguage* language() const override { return &triton::language(); }
  std::string in_words(const Environment& environment) const override {
    return environment.gpus.empty() ? "an NVIDIA GPU" : "a GPU: " + environment.gpus.front();
  }
};

}  // namespace

const Target& triton_target() {
  static const TritonTarget target;
  return target;
}

}  // namespace kw
