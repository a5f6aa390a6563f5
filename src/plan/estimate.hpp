// What one kernel will take on a device, from its axes, blocks and accesses: the cost model that orders a search. It
// need not be right in seconds, only in which of two schedules is faster.
#pragma once

#include "emit/kernel_ir.hpp"
#include "plan/scheduler.hpp"
#include "target/device.hpp"

namespace kw {

struct KernelEstimate {
  double memory_bytes = 0;  // through the device's memory: what caches serve is left out
  double cache_bytes = 0;   // read again out of the last cache
  double flops = 0;         // weighted by what an operation costs
  double registers = 0;     // of a thread, were there as many as it likes; 0 on a CPU
  double seconds = 0;       // without the launch
};

// By the cost model of the device's target. The kernel's body need not be arranged.
KernelEstimate estimate(const kernel_ir::Kernel& kernel, const DeviceDescription& device);
KernelEstimate estimate(const tile::Program& program, const DeviceDescription& device);
double seconds_of(const tile::Program& program, const DeviceDescription& device);

namespace plan {
// All kernels of a group with their launches.
double seconds_of(const ScheduledGroup& group, const DeviceDescription& device);
}  // namespace plan

// For cost models: how a device walks a kernel, as far as its memory is concerned.
struct MemoryRules {
  bool in_blocks = false;  // a program takes a block of each axis at once; else elements are walked one by one
  double line_bytes = 64;  // the least that memory moves
  double lost_bytes = 0;   // at the ends of a run of neighbouring elements
};

// What a kernel does, before anything is said of time.
struct KernelWork {
  kernel_ir::Kernel kernel;       // arranged
  KernelEstimate estimate;        // bytes and flops
  double tile = 1, programs = 1;  // elements of a program's block, and programs
  double iterations = 0;          // of a program's loops
  double folds = 0;               // reductions and steps of scans that a program waits for
  double bytes_asked = 0;         // by loads and stores, wherever they are served from
  std::vector<int> load_passes;   // [expression] how often a load's elements are read; 0: it is no load
  int loads_in_loop = 0;
};
KernelWork work_of(const kernel_ir::Kernel& kernel, const DeviceDescription& device, const MemoryRules& rules);

// Instructions that one element of the expression costs, roughly.
double weight_of(const kernel_ir::Expr& expr);
double weight_of(kernel_ir::ScalarOp op);
double weight_of_scan(kernel_ir::ReduceOp op);  // sorts too

}  // namespace kw
