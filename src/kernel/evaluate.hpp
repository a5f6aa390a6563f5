// The meaning of a kernel: every store's value at every point, in double precision (whole numbers exactly), for small
// sizes.
#pragma once

#include <map>
#include <string>

#include "kernel/kernel.hpp"
#include "kernel/scalar_values.hpp"

namespace kw::kernel {

// Buffers by name, their elements in the order of memory (by strides).
using Memory = std::map<std::string, Numbers>;

// Returns the memory after the kernel: outputs and in-out buffers as stores leave them. Casts between floating types do
// not round. Throws kUser where a buffer or size is missing or has the wrong number of elements, kInternal where an
// access that its mask allows lies outside.
Memory evaluate(const Kernel& kernel, const Memory& memory, const std::map<std::string, int64_t>& sizes = {});

}  // namespace kw::kernel
