// The comment that a candidate begins with: what made it, and how its kernels are scheduled.
#pragma once

#include <string>

#include "propose/compile.hpp"

namespace kw {

// Of each group that has kernels, the first twenty: its kernels, scheduler and parameters, how products of f32 are
// made, and which share of the roofline the cost model expects of it. Lines of at most 120 columns behind a "# ".
std::string source_header(const Compiled& compiled, const CompileOptions& options);

}  // namespace kw
