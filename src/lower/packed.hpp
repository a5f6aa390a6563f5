// Floats of 16 bits and fewer that a program loads, chooses and stores, or rounds and stores, without computing.
#pragma once

#include <vector>

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Marks, among what has variables of its own and what is written where it is used, the values that nothing is computed
// with: widened to f32 they would be narrowed again.
void pack(const tile::Program& program, std::vector<TilePlace>& places);

}  // namespace kw::lower
