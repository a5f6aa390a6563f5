// What a kernel needs of a multiprocessor, against what the device has.
#pragma once

#include "target/device.hpp"
#include "tile/program.hpp"

namespace kw::plan {

// Bytes of shared memory that a block needs at least: its own buffers there, and the operands of products that loops
// load, once for each stage whose loads are in flight.
int64_t least_shared_bytes(const tile::Program& program);

// Throws kUser ("bad-schedule") with the figures where a block needs more threads, shared memory or registers than the
// device has. Devices without shared memory have no such limits.
void check_limits(const tile::Program& program, const DeviceDescription& device);

}  // namespace kw::plan
