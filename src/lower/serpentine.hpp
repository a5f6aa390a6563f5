// A row that is walked again is walked from where the walk before ended: what was read last is still in the cache.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Turns every other of the loops that read what the loop before them read, in programs whose loops all walk one axis,
// blocks of it at a time. The order of iterations must not matter to the later ones.
void turn_later_walks(tile::Program& program);

}  // namespace kw::lower
