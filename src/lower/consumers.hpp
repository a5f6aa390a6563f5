// What the consumers of a program (tile/consumers.hpp) have on an NVIDIA GPU.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Divides registers between consumers and producer, lets products run on where nothing waits for them, and says where
// the sums of consumers that take blocks in turn lie when they are stored. What the program says already stays.
void decide_consumers(tile::Program& program);

}  // namespace kw::lower
