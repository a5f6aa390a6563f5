#include "plan/scheduler.hpp"

#include "emit/cpu/parts.hpp"
#include "emit/kernel_names.hpp"
#include "plan/axes.hpp"

namespace kw::plan {

const std::vector<Scheduler>& schedulers() {
  static const std::vector<Scheduler> table = {kPointwiseScheduler, kScanScheduler,      kBagScheduler,
                                               kSlidingScheduler,   kReductionScheduler, kNormalisationScheduler};
  return table;
}

const Scheduler* find_scheduler(std::string_view name) {
  for (const auto& scheduler : schedulers())
    if (scheduler.name == name) return &scheduler;
  return nullptr;
}

int64_t parameter(const Parameters& parameters, const std::string& name, int64_t fallback) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? fallback : found->second;
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
    group.kernel.loops.*choice = parameter(parameters, std::string(name), 0);
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

std::vector<ParameterRange> space_for_cpu(const LoweredGroup& group) {
  const ScheduledGroup scheduled = lower_for_cpu(group, {});
  std::vector<ParameterRange> ranges;
  for (const cpu::ChoiceRange& range : cpu::choices_of(scheduled.kernels.front().kernel))
    for (const auto& [choice, name] : kernel_ir::kLoopChoiceNames)
      if (choice == range.choice) ranges.push_back({std::string(name), range.values});
  return ranges;
}

}  // namespace kw::plan
