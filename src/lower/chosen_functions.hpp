// Functions of which a choice takes the result.
#pragma once

#include <vector>

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// In a tile, what takes many instructions is not computed under a condition, where all lanes would wait for branches:
// it gets a statement of its own before the choice that is its only reader.
void compute_before_choices(const tile::Program& program, std::vector<TilePlace>& places);

}  // namespace kw::lower
