// Between which numbers the values of a KernelIR expression lie (kernel/value_range.hpp).
#pragma once

#include "emit/kernel_ir.hpp"
#include "kernel/value_range.hpp"

namespace kw::kernel_ir {

using kernel::ValueRange;

// Floats only. Nearly linear in the expressions below `id`.
ValueRange value_range(const Kernel& kernel, ExprId id);

}  // namespace kw::kernel_ir
