// A step of the CPU target: boxes that may leave their buffers, as loads, stores and copies under masks.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// A CPU has no engine that leaves out what lies outside of a buffer: each box becomes a plain access under a mask that
// holds inside, without what its indices show already. Loads yield 0 beyond it, as boxes do.
void guard_boxes(tile::Program& program);

}  // namespace kw::lower
