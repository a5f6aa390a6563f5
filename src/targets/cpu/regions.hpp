// A pointwise kernel whose conditions ask where an element lies (cat, stack, slices, rolls, padding), cut at the places
// where the answers change: within a region none is asked, what is looked up at a known distance is a plain load, and
// axes that lie one behind the other in memory become one.
#pragma once

#include <vector>

#include "targets/cpu/simplify.hpp"

namespace kw::cpu {

// Axes, expressions and stores of the regions, in the order of memory, with the buffers of the whole; the kernel itself
// where nothing is gained.
std::vector<Simplified> regions_of(const Simplified& whole);

}  // namespace kw::cpu
