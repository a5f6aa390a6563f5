// Small @triton.jit functions that kernels call: folds that PyTorch's semantics ask for and Triton's built-ins do not
// give.
#pragma once

#include <set>
#include <string>

namespace kw::triton {

// Python source of the named helpers, in a fixed order, one blank-line separated definition each.
std::string helper_definitions(const std::set<std::string>& names);

bool is_helper(const std::string& name);

// Kernels that convert 8-bit floats take a constant that says whether the hardware does; a launch asks this function.
inline constexpr const char* kHardwareFloat8 = "hardware_float8";
inline constexpr const char* kHardwareFloat8Constant = "HARDWARE_FLOAT8";
inline constexpr int kHardwareFloat8Capability = 90;

}  // namespace kw::triton
