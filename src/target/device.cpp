#include "target/device.hpp"

#include "support/error.hpp"

namespace kw {

const Target& target_of(const DeviceDescription& device) {
  KW_ASSERT(device.target, "a device description names no target");
  return *device.target;
}

}  // namespace kw
