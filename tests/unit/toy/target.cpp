#include "toy/target.hpp"

#include "plan/estimate.hpp"
#include "support/error.hpp"
#include "toy/printer.hpp"
#include "toy/schedulers.hpp"

namespace kw {

namespace {

class ToyTarget : public Target {
 public:
  std::string_view name() const override { return "toy"; }
  std::string_view tensors() const override { return "cpu"; }
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

  const std::vector<plan::Scheduler>& schedulers() const override { return toy::schedulers(); }

  KernelEstimate estimate(const kernel_ir::Kernel& kernel, const DeviceDescription& device) const override {
    KernelWork work = work_of(kernel, device, {.in_blocks = false, .line_bytes = 64, .lost_bytes = 0});
    work.estimate.seconds = work.estimate.memory_bytes / device.copy_bytes_per_second +
                            work.estimate.flops / device.fp32_flops;
    return work.estimate;
  }
  KernelEstimate estimate(const tile::Program&, const DeviceDescription&) const override {
    fail_internal(__FILE__, __LINE__, "the toy has no tile programs");
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
