// What one kernel will take on a device, by its tile program: the cost model that orders a search. It
// need not be right in seconds, only in which of two schedules is faster.
#pragma once

#include "plan/group_kernel.hpp"
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

// By the cost model of the device's target.
KernelEstimate estimate(const tile::Program& program, const DeviceDescription& device);
double seconds_of(const tile::Program& program, const DeviceDescription& device);

namespace plan {
// All kernels of a group with their launches.
double seconds_of(const ScheduledGroup& group, const DeviceDescription& device);
}  // namespace plan

// Instructions that one element of the expression costs, roughly.
double weight_of(const plan::Expr& expr);
double weight_of(plan::ScalarOp op);
double weight_of_scan(plan::ReduceOp op);  // sorts too

}  // namespace kw
