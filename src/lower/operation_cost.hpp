// What operations cost on a CPU, roughly, in vector instructions; a load costs one.
#pragma once

#include "kernel/operations.hpp"

namespace kw::lower {

int cost_of(kernel::ScalarOp op);

}  // namespace kw::lower
