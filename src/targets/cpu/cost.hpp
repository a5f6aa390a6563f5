// The cost model of CPUs: it orders schedules, and need not be right in seconds.
#pragma once

#include "plan/estimate.hpp"

namespace kw::cpu {

constexpr double kInstructionsPerSecond = 3e9;  // of vectors, on one core
constexpr double kSynchroniseSeconds = 4e-6;    // where it was not measured
constexpr double kCacheOverMemory = 4;          // in bytes a second, where it was not measured
constexpr double kOneCoreShare = 0.6;           // of the memory's bandwidth, that a single core can ask for
constexpr double kProgramCycles = 20;           // of an iteration of the loops around what SIMD runs along
constexpr double kNearBytes = 32 << 10;         // of the nearest cache
constexpr double kFoldCycles = 40;              // in which a fold's lanes meet
constexpr int64_t kVectorBytesOfAvx512 = 64;    // of DeviceDescription::vector_bytes
constexpr double kCarryCycles = 4;              // that an addition waits for the one before

// Of a tile program: products at the rate that add_product (emit/runtime/cpu/tile_math.h) reaches, everything else by
// SIMD instructions, and its buffers through memory once.
KernelEstimate estimate_of(const tile::Program& program, const DeviceDescription& device);
// Of one without a grid: the loops that threads share are its own.
KernelEstimate estimate_loops(const tile::Program& program, const DeviceDescription& device);

}  // namespace kw::cpu
