// Seconds of a kernel on a GPU, by its tiles: occupancy, what is under way to memory, and the chain of a program's
// steps.
#include "targets/triton/cost.hpp"

#include <algorithm>
#include <cmath>

namespace kw::triton {

namespace {

constexpr double kLatencySeconds = 0.7e-6;  // of one round trip to memory
constexpr double kProgramSeconds = 0.8e-6;  // from a program's start to its first load, and from its last store to its
                                            // end
constexpr double kFoldSeconds = 0.15e-6;    // one step of a reduction across warps
constexpr double kRegistersOfUnit = 65536, kThreadsOfUnit = 2048, kMostRegisters = 255, kFixedRegisters = 24;

}  // namespace

double seconds_of(GpuWork& work, const DeviceDescription& device) {
  const double threads = 32.0 * work.warps;
  const double each = std::max(1.0, work.tile / threads);
  const double registers = work.estimate.registers = kFixedRegisters + each * work.live;
  double resident = std::floor(
      std::min({kRegistersOfUnit / (std::min(registers, kMostRegisters) * threads), kThreadsOfUnit / threads, 32.0}));
  resident = std::max(1.0, resident);
  const double spilled = std::max(0.0, registers - kMostRegisters) / kMostRegisters;

  const double units = static_cast<double>(device.units);
  const double busy = std::min(work.programs, units * resident);
  // Little's law: what is under way at once over the time that it takes.
  const double per_step = work.bytes_asked / std::max(1.0, work.programs * std::max(1.0, work.iterations));
  const double under_way = busy * std::max(per_step, 64.0);
  const double needed = device.copy_bytes_per_second * kLatencySeconds;
  const double bandwidth = device.copy_bytes_per_second * under_way / (under_way + 0.15 * needed) *
                           std::min(1.0, busy / units);
  const double cache_rate = device.cache_bytes_per_second > 0 ? device.cache_bytes_per_second
                                                              : 2.5 * device.copy_bytes_per_second;
  const double memory = work.estimate.memory_bytes / bandwidth;
  const double cache = work.estimate.cache_bytes / (cache_rate * std::min(1.0, busy / units));
  const double arithmetic = work.estimate.flops / (0.5 * device.fp32_flops * std::min(1.0, busy / units));
  const double narrow = std::min(1.0, 0.85 + 0.15 * std::min(each * 4, 16.0) / 16.0);
  const double waves = std::ceil(work.programs / (units * resident));
  const double folding = work.folds * kFoldSeconds * std::log2(2.0 * work.warps);
  const double chain = waves * (kProgramSeconds + work.iterations * kLatencySeconds + folding);
  const double shared_rate = device.shared_bytes_per_second > 0 ? device.shared_bytes_per_second
                                                                : 8 * device.copy_bytes_per_second;
  const double exchanged = work.folds * work.programs * work.tile * 8 / (std::max(1.0, each) * shared_rate);
  const double flowing = std::max({memory / narrow + cache, arithmetic, chain}) + exchanged;
  return (flowing + 0.1 * chain) * (1 + 2 * spilled);
}

KernelEstimate estimate_of(const tile::Program& program, const DeviceDescription& device) {
  return tile::maps_and_folds(program) ? estimate_map_and_fold(program, device) : estimate_products(program, device);
}

}  // namespace kw::triton
