#include "toy/target.hpp"

#include "plan/estimate.hpp"
#include "toy/printer.hpp"
#include "toy/schedulers.hpp"
#include "toy/steps.hpp"

namespace kw {

namespace {

constexpr lower::TargetStep kSteps[] = {{"subtract-negated", toy::subtract_negated}};

// Unlike the CPU's, whose tensors it shares, its loops gain nothing from rows, and it has no sort of its own.
constexpr GraphForms kGraphForms{.sorts = {.places_of_wide = false}};

class ToyTarget : public Target {
 public:
  std::string_view name() const override { return "toy"; }
  std::string_view tensors() const override { return "cpu"; }
  bool is_host() const override { return true; }
  std::string_view usual_size() const override { return "cpu"; }
  std::string_view description() const override { return "patient people"; }

  DeviceDescription default_device() const override {
    DeviceDescription device;
    device.target = this;
    device.name = "an interpreter";
    device.units = 4;
    device.cache_bytes = 1 << 20;
    device.copy_bytes_per_second = 1e8;
    device.fp32_flops = 1e7;
    device.launch_seconds = 1e-6;
    return device;
  }

  GraphForms graph_forms() const override { return kGraphForms; }

  const std::vector<plan::Scheduler>& schedulers() const override { return toy::schedulers(); }

  std::span<const lower::TargetStep> lowering_steps() const override { return kSteps; }

  // Each instruction takes its time once, and each buffer is moved once.
  KernelEstimate estimate(const tile::Program& program, const DeviceDescription& device) const override {
    KernelEstimate estimate;
    for (const tile::Buffer& buffer : program.buffers)
      estimate.memory_bytes += static_cast<double>(kernel::as_constant(buffer.shape.at(0)).value_or(1)) *
                               static_cast<double>(size_of(buffer.dtype));
    tile::for_each(program.body, [&](const tile::Instruction&) { ++estimate.flops; });
    estimate.seconds = estimate.memory_bytes / device.copy_bytes_per_second + estimate.flops / device.fp32_flops;
    return estimate;
  }

  std::unique_ptr<TargetPrinter> printer() const override { return toy::make_printer(); }
  std::string in_words(const Environment&) const override { return "an interpreter"; }
};

}  // namespace

const Target& toy_target() {
  static const ToyTarget target;
  return target;
}

}  // namespace kw
