// What masked loads yield where their masks do not hold: a GPU need not fill in what nothing sees.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Sets `any_otherwise` of the loads of which nothing sees what they yield where their masks do not hold: it is stored,
// selected and loaded from under the same masks only, and folded along none of their lanes.
void find_unseen_otherwise(tile::Program& program);

}  // namespace kw::lower
