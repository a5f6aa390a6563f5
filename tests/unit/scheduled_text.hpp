// Kernels in text form under the schedule that their axes say: `block 256 looped`, `launch warps 4`.
#pragma once

#include <algorithm>

#include "plan/lifted_kernel.hpp"

namespace kw::plan {

inline lower::KernelSchedule schedule_of(const kernel_ir::Kernel& kernel) {
  lower::KernelSchedule schedule = in_single_points(kernel, kernel.num_warps);
  bool folds = false, slides = false;
  for (size_t axis = 0; axis < kernel.axes.size(); ++axis) {
    const kernel_ir::Axis& one = kernel.axes[axis];
    folds = folds || kernel_ir::is_serial(one);
    slides = slides || one.unrolled;
    schedule.axes[axis] = one.looped ? in_loop(one.block) : in_blocks(one, one.block);
    if (one.looped) schedule.axes[axis].stages = kernel.num_stages;
    if (one.unrolled) schedule.axes[axis] = {.mapping = lower::Mapping::kLoop, .width = one.block, .unrolled = true};
  }
  schedule.cache_hints = folds && !slides;
  schedule.max_registers = kernel.max_registers;
  return schedule;
}

inline ScheduledTiles as_tiles(LoweredGroup group) {
  lower::KernelSchedule schedule = schedule_of(group.kernel);
  return as_tiles(std::move(group), std::move(schedule));
}

}  // namespace kw::plan
