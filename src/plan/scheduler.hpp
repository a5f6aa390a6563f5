// Schedulers: each takes lowered groups of one kind, offers parameters with defaults for a device, and turns the group
// into kernels. One table, in scheduler.cpp; each scheduler in its own file.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plan/group_lowering.hpp"
#include "target/device.hpp"

namespace kw::plan {

using Parameters = std::map<std::string, int64_t>;

// A tensor between the kernels of one group.
struct Scratch {
  std::string name;
  TensorType type;
  bool zeros = false;  // its contents at the start; else whatever is there
};

// One kernel of a scheduled group. buffers[i] >= 0 is a graph value, −1 − k is scratch k.
struct ScheduledKernel {
  kernel_ir::Kernel kernel;
  std::vector<int> buffers;
  bool by_last = false;  // its one program's work is done by the last program of the kernel before to end
};

struct ScheduledGroup {
  std::vector<Scratch> scratch;
  std::vector<ScheduledKernel> kernels;  // in order of execution
};

// Values worth trying for one parameter.
struct ParameterRange {
  std::string name;
  std::vector<int64_t> values;
};

struct Scheduler {
  std::string_view name;
  bool (*can_take)(const LoweredGroup& group);
  Parameters (*defaults)(const LoweredGroup& group, const DeviceDescription& device);
  std::vector<ParameterRange> (*space)(const LoweredGroup& group, const DeviceDescription& device);
  ScheduledGroup (*lower)(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device);
};

const std::vector<Scheduler>& schedulers();              // in order of preference
const Scheduler* find_scheduler(std::string_view name);  // nullptr when there is none

// Shared by the schedulers.
int64_t parameter(const Parameters& parameters, const std::string& name, int64_t fallback);  // the fallback where there
                                                                                             // is none of the name
int64_t next_power_of_two(int64_t value);
int64_t floor_power_of_two(int64_t value);
int64_t ceil_divide(int64_t value, int64_t divisor);
ScheduledKernel as_scheduled(LoweredGroup group);
// Order and merge; what the parameters (kernel_ir::LoopChoices, by name) do not say of loops, threads and SIMD, the CPU
// printer chooses from the accesses.
ScheduledGroup lower_for_cpu(LoweredGroup group, const Parameters& parameters);
std::vector<ParameterRange> space_for_cpu(const LoweredGroup& group);

extern const Scheduler kPointwiseScheduler, kReductionScheduler, kNormalisationScheduler, kSlidingScheduler,
    kBagScheduler, kScanScheduler;

}  // namespace kw::plan
