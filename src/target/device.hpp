// What the planner knows of the machine that a candidate runs on. Defaults are measured figures; a worker's measured
// ceilings replace them.
#pragma once

#include <cstdint>
#include <string>

namespace kw {

class Target;

struct DeviceDescription {
  std::string name;
  const Target* target = nullptr;
  int64_t units = 1;             // multiprocessors, or cores
  int64_t cache_bytes = 0;       // of the last level that all units share
  int64_t unit_cache_bytes = 0;  // registers of a multiprocessor, L2 of a core
  int64_t shared_bytes = 0;      // of a multiprocessor's shared memory, that one block may have
  int64_t threads = 1024;        // of a block on a GPU, at most
  bool warp_roles = false;       // kernels can give a GPU's single warps work of their own (src/tile/consumers.hpp)
  int64_t vector_bytes = 16;     // SIMD register, or the widest load of a GPU thread
  double copy_bytes_per_second = 0;
  double fp32_flops = 0;
  double half_flops = 0;       // products of 16-bit numbers summed in fp32, on tensor cores; 0: the device has none
  double sustained_share = 1;  // of half_flops, what is left where products run so long that power limits the clock
  double launch_seconds = 0;
  // By `kw device --calibrate`; 0: not measured, the cost model goes by the figures above.
  double read_bytes_per_second = 0;
  double strided_bytes_per_second = 0;  // useful bytes, one 4-byte element a line
  double gather_bytes_per_second = 0;   // useful bytes, 4-byte elements at random
  double cache_bytes_per_second = 0;    // of the last level
  double shared_bytes_per_second = 0;   // shared memory of a multiprocessor, first level of a core; all units together
  double synchronise_seconds = 0;       // the host waits for an idle device, or for the other threads

  // Of its shared memory, what operands of a block may take: folds and barriers need some as well.
  int64_t operand_bytes() const { return shared_bytes - (27 << 10); }
};

const Target& target_of(const DeviceDescription& device);  // asserts that there is one

}  // namespace kw
