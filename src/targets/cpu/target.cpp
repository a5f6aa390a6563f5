#include "targets/cpu/target.hpp"

#include "emit/target_printer.hpp"
#include "judge/environment.hpp"
#include "plan/concatenation.hpp"
#include "plan/join_products.hpp"
#include "support/error.hpp"
#include "targets/cpu/cost.hpp"
#include "targets/cpu/language.hpp"
#include "targets/cpu/lowering.hpp"
#include "targets/cpu/meanings.hpp"
#include "targets/cpu/schedulers.hpp"

namespace kw {

namespace {

// Measured with PyTorch 2.13 on an AMD EPYC with AVX-512 and its instructions for bf16.
constexpr LibraryRates kLibraryRates{.products = 0.9,
                                     .tile = 1,
                                     .seconds_of_element = 0.6e-9,
                                     .single_attention = 0.9,
                                     .halves_attention = 0.9,
                                     .masked_attention = 0.9,
                                     // With AVX2, 4 x 4 x 16 to 28 x 28 x 128 places and channels.
                                     .exact_convolutions = 0.96,
                                     .small_convolution = 20e-6,
                                     .more_of_convolution = 70e-6,
                                     // On the scale on which the model has ours, which is that of data in memory:
                                     // four times what both take of data in caches.
                                     .small_depthwise = 330e-6,
                                     .depthwise_products = 0.1,
                                     .adds_bias = false,
                                     .counts_kept = false,
                                     .flops_of_score = 40,
                                     .attention_rows = 0,
                                     // Recurrent layers: with AVX2 (docs/measurements/cpu.md).
                                     .lstm = {9e-6, 1e-9},
                                     .gru = {40e-6, 15e-9},
                                     .rnn = {16e-6, 5e-9},
                                     .projected = {40e-6, 15e-9},  // not oneDNN's
                                     .recurrences = 0.9,
                                     .is_launched = false,
                                     .bf16 = 4.0,
                                     .f16 = 0.06};

// Sorted places of the largest alone are no faster than the library's, whose choice among equals they would have to
// repeat.
constexpr GraphForms kGraphForms{
    .sorts = {.places_of_largest = false}, .windows_fold_rows_first = true, .patches_as_products = true};

class CpuTarget : public Target {
 public:
  std::string_view name() const override { return "cpu"; }
  std::string_view tensors() const override { return "cpu"; }
  bool is_host() const override { return true; }
  std::string_view usual_size() const override { return "cpu"; }
  std::string_view description() const override { return ""; }

  DeviceDescription default_device() const override {
    DeviceDescription device;  // a small AVX2 machine
    device.target = this;
    device.name = "generic CPU";
    device.units = 2;
    device.cache_bytes = 32 << 20;
    device.unit_cache_bytes = 1 << 20;
    device.vector_bytes = 32;
    device.copy_bytes_per_second = 1.5e10;
    device.fp32_flops = 1e11;
    device.launch_seconds = 3e-6;
    return device;
  }

  void look_at(DeviceDescription& device, const Environment& environment,
               const nlohmann::ordered_json& /*card*/) const override {
    device.units = environment.cpu_threads;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) device.vector_bytes = 64;
#endif
    if (const double cache = cpu_cache_bytes(); cache > 0) device.cache_bytes = static_cast<int64_t>(cache);
  }

  BuildCommand build_command() const override { return {.one_by_one = false, .needs_compiler = true}; }

  GraphForms graph_forms() const override { return kGraphForms; }

  const std::vector<plan::Scheduler>& schedulers() const override { return cpu::schedulers(); }

  void join_groups(const Graph& graph, Schedule& schedule, const DeviceDescription& device) const override {
    Schedule joined = join_products(graph, schedule, device, kLibraryRates);
    schedule = with_concatenations_in_place(graph, schedule, std::move(joined), device, kLibraryRates);
  }

  std::span<const lower::TargetStep> lowering_steps() const override { return cpu::lowering_steps(); }

  KernelEstimate estimate(const tile::Program& program, const DeviceDescription& device) const override {
    return cpu::estimate_of(program, device);
  }

  std::unique_ptr<TargetPrinter> printer() const override { return make_cpu_printer(); }

  std::string_view meaning_of(std::string_view parameter) const override { return cpu::meaning_of(parameter); }
  std::string_view on_values() const override { return "A value of 0 leaves the choice to the compiler."; }
  const KernelLanguage* language() const override { return &cpu::language(); }
  std::string in_words(const Environment& environment) const override {
    return environment.cpu_name.empty()
               ? "this CPU"
               : "a CPU: " + environment.cpu_name + ", " + std::to_string(environment.cpu_threads) + " threads";
  }
};

}  // namespace

const Target& cpu_target() {
  static const CpuTarget target;
  return target;
}

}  // namespace kw
