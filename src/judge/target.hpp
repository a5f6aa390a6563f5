// Where a candidate runs, by name.
#pragma once

#include <string>

namespace kw {

struct Environment;

// "triton" or "cpu": `asked`, or for "auto" what this machine has. Throws kMissing when triton is asked for and
// `needs_device` and there is no GPU.
std::string resolve_target(const std::string& asked, const Environment& environment, bool needs_device);

std::string device_of(const std::string& target);  // "cuda" or "cpu"

}  // namespace kw
