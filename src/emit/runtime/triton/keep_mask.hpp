// kw.keep_mask: which elements a dropout keeps, by the numbers of PyTorch's CUDA kernels. A kernel written by hand,
// with the Python that takes the generator's state and moves it on.
#pragma once

#include <string>

#include "emit/program.hpp"

namespace kw::triton {

inline constexpr const char* kKeepMaskKernel = "keep_mask_kernel";

// Both empty where the program makes no mask.
std::string keep_mask_definition(const Program& program);
std::string keep_mask_signatures(const Program& program);  // lines of KERNEL_SIGNATURES

}  // namespace kw::triton
