// Reversed loops of a target whose loops count iterations.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Gives each reversed loop a counter of its iterations. Of a variable that is counted down itself a compiler would not
// know that it is a multiple of the step, and accesses would be narrow.
void count_reversed_loops(tile::Program& program);

}  // namespace kw::lower
