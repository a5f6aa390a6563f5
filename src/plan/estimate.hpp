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

// The kernel's body need not be arranged. Costs of a Triton kernel by its tiles, of a CPU kernel by its axes.
KernelEstimate estimate(const kernel_ir::Kernel& kernel, const DeviceDescription& device);

// Of a tile program: dots on the cores that their types and precision ask for, what its loads move through the last
// cache, and its buffers through memory once. What stands under an If is left out: it is for rare inputs.
double seconds_of(const tile::Program& program, const DeviceDescription& device);

namespace plan {
// All kernels of a group with their launches.
double seconds_of(const ScheduledGroup& group, const DeviceDescription& device);
}  // namespace plan

// Of a CPU kernel: seconds by its loops (emit/cpu/loop_nest.hpp), given what it moves.
double cpu_seconds(const kernel_ir::Kernel& kernel, const KernelEstimate& moved, const DeviceDescription& device);

// Instructions that one element of the expression costs, roughly.
double weight_of(const kernel_ir::Expr& expr);

}  // namespace kw
