// The CPU's schedulers, one for each kind of group (plan/group_kinds.hpp).
#pragma once

#include "plan/scheduler.hpp"

namespace kw::cpu {

const std::vector<plan::Scheduler>& schedulers();

}  // namespace kw::cpu
