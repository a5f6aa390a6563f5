// What a tile program's loads should leave in the cache.
#pragma once

#include <vector>

#include "tile/program.hpp"

namespace kw::lower {

// Of loads along folded axes (their lanes and loops, `folded`): what all blocks read is to stay, and so is what a later
// loop reads again, but for its last pass, after which it may leave first.
void give_cache_hints(tile::Program& program, const std::vector<tile::Symbol>& folded);

}  // namespace kw::lower
