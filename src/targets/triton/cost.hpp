// The cost model of GPUs: it orders schedules, and need not be right in seconds.
#pragma once

#include "plan/estimate.hpp"

namespace kw::triton {

// What a launch asks of a GPU, before anything is said of time.
struct GpuWork {
  KernelEstimate estimate;        // bytes and flops
  double tile = 1, programs = 1;  // elements of a program's block, and programs
  double iterations = 0;          // of a program's loops
  double folds = 0;               // that a program waits for
  double bytes_asked = 0;         // by loads and stores, wherever they are served from
  int warps = 4;
  int live = 1;  // values of an element that a thread has at once
};
// Sets the estimate's registers, too.
double seconds_of(GpuWork& work, const DeviceDescription& device);

// Accesses move whole sectors of the last cache, and lose some at the ends of a run.
inline constexpr double kLineBytes = 32, kLostBytes = 8;

KernelEstimate estimate_of(const tile::Program& program, const DeviceDescription& device);

// Of a program that maps elements and folds them (map_and_fold_cost.cpp).
KernelEstimate estimate_map_and_fold(const tile::Program& program, const DeviceDescription& device);

// Of other tile programs: dots on the cores that their types and precision ask for, what its loads move through the
// last cache, and its buffers through memory once. What stands under an If is left out: it is for rare inputs.
KernelEstimate estimate_products(const tile::Program& program, const DeviceDescription& device);

}  // namespace kw::triton
