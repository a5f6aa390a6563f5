#include "plan/scheduler.hpp"

#include "emit/cpu/parts.hpp"
#include "emit/kernel_names.hpp"
#include "plan/axes.hpp"
#include "plan/concatenation.hpp"
#include "support/error.hpp"
#include "support/suggest.hpp"
#include "support/text.hpp"

namespace kw::plan {

namespace {

constexpr std::string_view kLibraryCall = "extern";

}  // namespace

const std::vector<Scheduler>& schedulers() {
  static const std::vector<Scheduler> table = {
      kPointwiseScheduler,     kScanScheduler,        kBagScheduler,       kSlidingScheduler,     kReductionScheduler,
      kNormalisationScheduler, kContractionScheduler, kAttentionScheduler, kConvolutionScheduler, kRecurrenceScheduler};
  return table;
}

bool takes(const Scheduler& scheduler, const LoweredGroup& group) {
  const bool takes_products = scheduler.name == kContractionScheduler.name ||
                              scheduler.name == kAttentionScheduler.name ||
                              scheduler.name == kConvolutionScheduler.name;
  const bool takes_recurrences = scheduler.name == kRecurrenceScheduler.name;
  return group.product.has_value() == takes_products && group.recurrence.has_value() == takes_recurrences &&
         scheduler.can_take(group);
}

const Scheduler* scheduler_for(const LoweredGroup& group) {
  for (const Scheduler& scheduler : schedulers())
    if (takes(scheduler, group)) return &scheduler;
  return nullptr;
}

const Scheduler* find_scheduler(std::string_view name) {
  for (const auto& scheduler : schedulers())
    if (scheduler.name == name) return &scheduler;
  return nullptr;
}

void check_parameters(std::string_view scheduler, const Parameters& parameters, const DeviceDescription& device,
                      const std::string& group) {
  static const ParameterTable none({});
  const Scheduler* found = find_scheduler(scheduler);
  if (!found && scheduler != kLibraryCall && scheduler != kStoredInPlace) {
    std::vector<std::string> names = {std::string(kLibraryCall), std::string(kStoredInPlace)};
    for (const Scheduler& one : schedulers()) names.emplace_back(one.name);
    const std::string near = nearest(scheduler, names);
    throw Error(
        ErrorKind::kUser, "the schedule asks for an unknown scheduler '" + std::string(scheduler) + "' for " + group,
        (near.empty() ? "" : "Did you mean '" + near + "'? ") + "The schedulers are " + join(names, ", ") + ".");
  }
  (found ? found->takes(device) : none)
      .check(parameters, group + ", scheduler '" + std::string(scheduler) + "' on " + device.target + ",");
}

int64_t next_power_of_two(int64_t value) {
  int64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

int64_t floor_power_of_two(int64_t value) {
  int64_t power = 1;
  while (power * 2 <= value) power *= 2;
  return power;
}

int64_t ceil_divide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

ScheduledKernel as_scheduled(LoweredGroup group) {
  ScheduledKernel scheduled;
  for (ValueId value : group.buffers) scheduled.buffers.push_back(value);
  scheduled.kernel = std::move(group.kernel);
  name_axes(scheduled.kernel);
  return scheduled;
}

ScheduledGroup lower_for_cpu(LoweredGroup group, const Parameters& parameters) {
  for (const auto& [choice, name] : kernel_ir::kLoopChoiceNames)
    group.kernel.loops.*choice = parameters_for_cpu().read(parameters, name);
  if (kernel_ir::scatters(group.kernel)) put_meeting_axes_last(group.kernel);
  order_by_stride(group.kernel);
  coalesce(group.kernel);
  for (auto& axis : group.kernel.axes) {
    axis.block = 1;
    axis.looped = kernel_ir::is_serial(axis);
  }
  // The SIMD loop runs along the axis on which most traffic is contiguous.
  for (const auto& one : traffic_of(group.kernel)) {
    for (int axis = static_cast<int>(group.kernel.axes.size()); axis-- > 0;)
      if (stride_along(*one.access, axis) == 1) {
        group.kernel.axes[axis].vector = true;
        ScheduledGroup result;
        result.kernels.push_back(as_scheduled(std::move(group)));
        return result;
      }
  }
  ScheduledGroup result;
  result.kernels.push_back(as_scheduled(std::move(group)));
  return result;
}

const ParameterTable& parameters_for_cpu() {
  static const ParameterTable table = [] {
    std::vector<ParameterSpec> specs;
    for (const cpu::ChoiceLimits& limits : cpu::choice_limits())
      for (const auto& [choice, name] : kernel_ir::kLoopChoiceNames)
        if (choice == limits.choice)
          specs.push_back({.name = name,
                           .least = 0,
                           .most = limits.most,
                           .unsaid = 0,
                           .powers_of_two = limits.powers_of_two,
                           .tried = limits.tried});
    return ParameterTable(std::move(specs));
  }();
  return table;
}

std::vector<ParameterRange> space_for_cpu(const LoweredGroup& group) {
  const ScheduledGroup scheduled = lower_for_cpu(group, {});
  std::vector<ParameterRange> ranges;
  for (int64_t kernel_ir::LoopChoices::* made : cpu::choices_of(scheduled.kernels.front().kernel))
    for (const auto& [choice, name] : kernel_ir::kLoopChoiceNames)
      if (choice == made) ranges.push_back(parameters_for_cpu().range(name));
  return ranges;
}

}  // namespace kw::plan
