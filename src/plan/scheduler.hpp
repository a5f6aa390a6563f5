// Schedulers: each takes lowered groups of one kind, offers parameters with defaults for a device, and turns the group
// into kernels. A table for each target (Target::schedulers); each scheduler in its own file.
#pragma once

#include <memory>
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

// One kernel of a scheduled group, and what it was lowered from. buffers[i] >= 0 is a graph value, −1 − k is scratch k;
// each starts `offsets[i]` elements into what it lies in.
struct ScheduledTiles {
  tile::Program program;
  std::vector<int> buffers;
  std::vector<int64_t> offsets;
  std::optional<Repetition> repetition = {};
  std::shared_ptr<const lower::Source> source = {};
  bool by_last = false;  // its one block's work is done by the last block of the tile program before to end
};

// A kernel of a group that splits an operand into halves, which the kernel that makes the operand could do instead.
struct SplitByKernel {
  SplitLayout layout;
  size_t tile = 0;
  bool needs_halves_alone = false;  // the others read the operand itself only where its halves do not hold it
};

// Tile programs in order of execution.
struct ScheduledGroup {
  std::vector<Scratch> scratch;
  std::vector<ScheduledTiles> tiles;
  std::vector<SplitByKernel> splits;
};

enum class GroupWork { kElements, kProducts, kRecurrences };

struct Scheduler {
  std::string_view name;  // in schedules; schedulers of several targets may share it
  GroupWork work;         // a group with a product is nobody's but theirs, and so with recurrences
  bool (*can_take)(const LoweredGroup& group);
  const ParameterTable& (*takes)();
  Parameters (*defaults)(const LoweredGroup& group, const DeviceDescription& device);
  std::vector<ParameterRange> (*space)(const LoweredGroup& group, const DeviceDescription& device);
  // `parameters` have passed the check of takes(); what a group is too small for is shortened. To be called by
  // lowered_for, which asks whether the device can run it.
  ScheduledGroup (*lower)(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device);
};

// Of the device's target: the one that takes a group by itself, the one of that name; nullptr where there is none.
const Scheduler* scheduler_for(const LoweredGroup& group, const DeviceDescription& device);
const Scheduler* find_scheduler(std::string_view name, const DeviceDescription& device);
bool takes(const Scheduler& scheduler, const LoweredGroup& group);
// As the scheduler lowers it. Throws kUser where lowering refuses, or a kernel needs more than the device has.
ScheduledGroup lowered_for(const Scheduler& scheduler, LoweredGroup group, const Parameters& parameters,
                           const DeviceDescription& device);
// The same; nullopt where lowering refuses what the scheduler makes of it. `why`: in its words.
std::optional<ScheduledGroup> lowered_by(const Scheduler& scheduler, LoweredGroup group, const Parameters& parameters,
                                         const DeviceDescription& device, std::string* why = nullptr);
inline constexpr const char* kLibraryCall = "extern";  // what a schedule's group has for one
bool is_kernel(std::string_view scheduler);  // of a schedule's group: not "extern", a library call, nor "in_place"
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

// Of tile programs, for targets whose printer takes them.
extern const Scheduler kContractionScheduler, kAttentionScheduler, kLinearAttentionScheduler, kConvolutionScheduler,
    kRecurrenceScheduler;

}  // namespace kw::plan
