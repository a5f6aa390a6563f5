// Small @triton.jit functions that kernels call: folds that PyTorch's semantics ask for and Triton's built-ins do not give.
#pragma once

#include <set>
#include <string>

namespace kw::triton {

// Python source of the named helpers, in a fixed order, one blank-line separated definition each.
std::string helper_definitions(const std::set<std::string>& names);

}  // namespace kw::triton
