// Whether a kernel may write a buffer's new contents where the old ones lie (emit/in_place.hpp).
#pragma once

#include "tile/program.hpp"

namespace kw::triton {

// Both buffers are accessed at equal indices throughout. Threads work on a program's tile in no order among them.
bool reads_before_it_writes(const tile::Program& program, int read, int written);

}  // namespace kw::triton
