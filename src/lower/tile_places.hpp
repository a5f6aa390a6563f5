// Where every tile of a loop tree lives.
#pragma once

#include "lower/loop_plan.hpp"
#include "lower/loop_tree.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Gives every value its place, with what takes over another's array in it, and every step what is declared before it.
LoopPlan place_tiles(const tile::Program& program, LoopTree tree, const std::vector<int>& ranks);

}  // namespace kw::lower
