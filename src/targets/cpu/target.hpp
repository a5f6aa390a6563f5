// C++ kernels, compiled when they are first called.
#pragma once

#include "target/target.hpp"

namespace kw {

const Target& cpu_target();

}  // namespace kw
