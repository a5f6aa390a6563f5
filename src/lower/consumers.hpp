// What the consumers of a program (tile/consumers.hpp) have on an NVIDIA GPU.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Divides registers between consumers and producer, and says where sums of consumers that take blocks in turn are when
// they are stored. Has consumers wait for boxes and products, as late as what reads them allows, release boxes that
// nothing reads any more, and move values to the registers where they meet others.
void decide_consumers(tile::Program& program);

}  // namespace kw::lower
