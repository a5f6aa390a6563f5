// Schedules of single kernels, beside the parameters of the scheduler that makes them: written out, so that a person
// can see and change them, and taken in place of what the scheduler gives its kernels.
#pragma once

#include <map>
#include <string>

#include "emit/program.hpp"
#include "plan/schedule.hpp"
#include "plan/scheduler.hpp"

namespace kw {

// With the schedule of each kernel, as the program has it.
Schedule with_kernel_schedules(Schedule schedule, const Program& program);

namespace plan {

// Lowers those of the group's kernels again that have another schedule in `kernels` (GroupSchedule). Throws kUser that
// names `group`, the kernel and the word: a kernel that the group does not have, what parse_schedule refuses, what
// lowering cannot keep or the device has not, and what a kernel's own scheduler has laid out memory for.
void reschedule(ScheduledGroup& made, const std::map<std::string, std::string>& kernels,
                const DeviceDescription& device, const std::string& group);

}  // namespace plan

}  // namespace kw
