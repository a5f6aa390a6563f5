// Does an answer of the archive stand for what is asked now?
#pragma once

#include "run/optimize.hpp"

namespace kw {

// An answer counts when nothing that is asked for now would have changed it.
bool may_come_from_archive(const OptimizeOptions& options);
bool answers(const Report& stored, const OptimizeOptions& options);

}  // namespace kw
