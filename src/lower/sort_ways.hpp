// Sorts of rows of which only the first places are read.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Has sorts whose way is free put only the first places in order (ScanWay::kTopK), a power of two of them, where these
// are no more than half of the row.
void choose_ways_of_sorts(tile::Program& program);

}  // namespace kw::lower
