#include "target/device.hpp"

#include "support/error.hpp"

namespace kw {

DeviceDescription default_device(std::string_view target) {
  DeviceDescription device;
  device.target = target;
  if (target == "triton") {
    device.name = "NVIDIA H200";
    device.units = 132;
    device.cache_bytes = 50 << 20;
    device.unit_cache_bytes = 256 << 10;
    device.vector_bytes = 16;
    device.copy_bytes_per_second = 4.3e12;
    device.fp32_flops = 51e12;
    device.half_flops = 650e12;
    device.launch_seconds = 2.5e-6;
    return device;
  }
  if (target != "cpu")
    throw Error(ErrorKind::kUser, "unknown target '" + std::string(target) + "'", "Use triton or cpu.");
  device.name = "generic CPU";
  device.units = 2;
  device.cache_bytes = 32 << 20;
  device.unit_cache_bytes = 1 << 20;
  device.vector_bytes = 32;
  device.copy_bytes_per_second = 1.5e10;
  device.fp32_flops = 1e11;
  device.launch_seconds = 3e-6;
  return device;
}

}  // namespace kw
