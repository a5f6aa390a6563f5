#include "plan/scheduler.hpp"

#include "plan/concatenation.hpp"
#include "plan/device_limits.hpp"
#include "support/error.hpp"
#include "support/suggest.hpp"
#include "support/text.hpp"
#include "target/target.hpp"

namespace kw::plan {

bool takes(const Scheduler& scheduler, const LoweredGroup& group) {
  return group.product.has_value() == (scheduler.work == GroupWork::kProducts) &&
         group.recurrence.has_value() == (scheduler.work == GroupWork::kRecurrences) && scheduler.can_take(group);
}

ScheduledGroup lowered_for(const Scheduler& scheduler, LoweredGroup group, const Parameters& parameters,
                           const DeviceDescription& device) {
  ScheduledGroup made = scheduler.lower(std::move(group), parameters, device);
  for (const ScheduledTiles& one : made.tiles) check_limits(one.program, device);
  return made;
}

std::optional<ScheduledGroup> lowered_by(const Scheduler& scheduler, LoweredGroup group, const Parameters& parameters,
                                         const DeviceDescription& device, std::string* why) {
  try {
    return lowered_for(scheduler, std::move(group), parameters, device);
  } catch (const Error& error) {
    if (error.text().code != "bad-schedule") throw;
    if (why) *why = error.text().message;
    return std::nullopt;
  }
}

const Scheduler* scheduler_for(const LoweredGroup& group, const DeviceDescription& device) {
  for (const Scheduler& scheduler : target_of(device).schedulers())
    if (takes(scheduler, group)) return &scheduler;
  return nullptr;
}

const Scheduler* find_scheduler(std::string_view name, const DeviceDescription& device) {
  for (const Scheduler& scheduler : target_of(device).schedulers())
    if (scheduler.name == name) return &scheduler;
  return nullptr;
}

bool is_kernel(std::string_view scheduler) { return scheduler != kLibraryCall && scheduler != kStoredInPlace; }

void check_parameters(std::string_view scheduler, const Parameters& parameters, const DeviceDescription& device,
                      const std::string& group) {
  static const ParameterTable none({});
  const Target& target = target_of(device);
  const Scheduler* found = find_scheduler(scheduler, device);
  if (!found && is_kernel(scheduler)) {
    std::vector<std::string> names = {std::string(kLibraryCall), std::string(kStoredInPlace)};
    for (const Scheduler& one : target.schedulers()) names.emplace_back(one.name);
    const std::string near = nearest(scheduler, names);
    throw Error(
        ErrorKind::kUser, "the schedule asks for an unknown scheduler '" + std::string(scheduler) + "' for " + group,
        (near.empty() ? "" : "Did you mean '" + near + "'? ") + "The schedulers are " + join(names, ", ") + ".");
  }
  (found ? found->takes() : none)
      .check(parameters, group + ", scheduler '" + std::string(scheduler) + "' on " + std::string(target.name()) + ",");
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

}  // namespace kw::plan
