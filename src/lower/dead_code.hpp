// Removes the instructions whose results nobody reads, and what only they read.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

void remove_dead_code(tile::Program& program);

}  // namespace kw::lower
