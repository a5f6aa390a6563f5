// Kernels in text form as the CPU's scheduler would lower them.
#pragma once

#include "emit/kernel_ir.hpp"
#include "targets/cpu/schedulers.hpp"
#include "tile/program.hpp"

namespace kw::cpu {

inline tile::Program tiles_of(const kernel_ir::Kernel& kernel) {
  plan::LoweredGroup group;
  group.kernel = kernel;
  group.buffers.resize(kernel.buffers.size());
  for (const kernel_ir::Axis& axis : kernel.axes) group.windowed = group.windowed || axis.unrolled;
  return as_tiles(std::move(group)).program;
}

}  // namespace kw::cpu
