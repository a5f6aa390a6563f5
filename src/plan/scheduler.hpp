// Schedulers: each takes lowered groups of one kind, offers parameters with defaults for a device, and turns the group
// into kernels. One table, in scheduler.cpp; each scheduler in its own file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emit/program.hpp"
#include "plan/group_lowering.hpp"
#include "plan/parameters.hpp"
#include "target/device.hpp"
#include "tile/program.hpp"

namespace kw::plan {

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

// A kernel of the newer form. Its buffers start `offsets[i]` elements into what they lie in.
struct ScheduledTiles {
  tile::Program program;
  std::vector<int> buffers;
  std::vector<int64_t> offsets;
  std::optional<Repetition> repetition = {};
};

// Kernels, or tile programs with kernels behind them, in order of execution.
struct ScheduledGroup {
  std::vector<Scratch> scratch;
  std::vector<ScheduledKernel> kernels;
  std::vector<ScheduledTiles> tiles;
  std::vector<ScheduledKernel> behind;
};

struct Scheduler {
  std::string_view name;
  bool (*can_take)(const LoweredGroup& group);
  const ParameterTable& (*takes)(const DeviceDescription& device);
  Parameters (*defaults)(const LoweredGroup& group, const DeviceDescription& device);
  std::vector<ParameterRange> (*space)(const LoweredGroup& group, const DeviceDescription& device);
  // `parameters` have passed the check of takes(); what a group is too small for is shortened.
  ScheduledGroup (*lower)(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device);
};

const std::vector<Scheduler>& schedulers();  // in order of preference
// The one that takes a group by itself; nullptr where none does. A group with a product is nobody's but the contraction
// scheduler's, the attention scheduler's or the convolution scheduler's, and a recurrence the recurrence scheduler's.
const Scheduler* scheduler_for(const LoweredGroup& group);
bool takes(const Scheduler& scheduler, const LoweredGroup& group);
const Scheduler* find_scheduler(std::string_view name);  // nullptr when there is none
// Throws kUser where there is no such scheduler ("extern", a library call, takes no parameters), or it does not take
// these. `group` names the group.
void check_parameters(std::string_view scheduler, const Parameters& parameters, const DeviceDescription& device,
                      const std::string& group);

// Shared by the schedulers.
constexpr int64_t kMostLanes = 1 << 20;  // of one axis of a block: Triton takes no larger tensor
constexpr int64_t kMostWarps = 32;       // of a program: 1024 threads
int64_t next_power_of_two(int64_t value);
int64_t floor_power_of_two(int64_t value);
int64_t ceil_divide(int64_t value, int64_t divisor);
ScheduledKernel as_scheduled(LoweredGroup group);
// Order and merge; what the parameters (kernel_ir::LoopChoices, by name) do not say of loops, threads and SIMD, the CPU
// printer chooses from the accesses.
ScheduledGroup lower_for_cpu(LoweredGroup group, const Parameters& parameters);
std::vector<ParameterRange> space_for_cpu(const LoweredGroup& group);
const ParameterTable& parameters_for_cpu();

extern const Scheduler kPointwiseScheduler, kReductionScheduler, kNormalisationScheduler, kSlidingScheduler,
    kBagScheduler, kScanScheduler, kContractionScheduler, kAttentionScheduler, kConvolutionScheduler,
    kRecurrenceScheduler;

}  // namespace kw::plan
