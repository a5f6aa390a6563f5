// Triton kernels, for NVIDIA's GPUs.
#pragma once

#include "target/target.hpp"

namespace kw {

const Target& triton_target();

}  // namespace kw
