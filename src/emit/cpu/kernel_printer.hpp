// One kernel as a C++ function with a C interface: pointers in the order of the kernel's buffers, then `int threads`
// where it uses them.
#pragma once

#include <string>

#include "emit/cpu/helper_sections.hpp"
#include "emit/kernel_ir.hpp"

namespace kw::cpu {

struct PrintedKernel {
  std::string text;
  bool takes_threads = false;
};

// Whether its function has the parameter `threads`.
bool takes_threads(const kernel_ir::Kernel& kernel);

// Does the kernel return whether it met an index that it had to refuse?
bool refuses_indices(const kernel_ir::Kernel& kernel);

// Whether the function, as it is printed, is done with each element of the buffer `read` when it stores the same place
// of `written`, to whose memory it may then lie. Both are accessed at equal indices throughout, which no scan and no
// gather computes.
bool reads_before_it_writes(const kernel_ir::Kernel& kernel, int read, int written);

// Adds the helpers that the kernel calls to `helpers`.
PrintedKernel print_kernel(const kernel_ir::Kernel& kernel, HelperSet& helpers);

}  // namespace kw::cpu
