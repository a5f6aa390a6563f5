// Words of a schedule that would change nothing, as far as the kernel alone says.
#pragma once

#include <string>

#include "kernel/kernel.hpp"
#include "lower/schedule.hpp"

namespace kw::lower {

// What is asked for, and why there is nothing that it applies to; empty where every word may have an effect.
std::string idle_word(const KernelSchedule& schedule, const kernel::Kernel& kernel);

}  // namespace kw::lower
