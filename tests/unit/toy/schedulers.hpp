#pragma once

#include "plan/scheduler.hpp"

namespace kw::toy {

// Sums and maxima of rows, and what is computed element by element; a few operators. Everything else is the library's.
const std::vector<plan::Scheduler>& schedulers();

}  // namespace kw::toy
