// Comments in kernels, for choices whose reason their text does not show.
#pragma once

#include <string>

#include "tile/program.hpp"
#include "tile/value_facts.hpp"

namespace kw::triton {

// Of the line that computes it; empty: it needs none.
std::string note_of(const tile::Program& program, const tile::ValueFacts& values, const tile::Instruction& one);

// Of the places of blocks in the grid.
std::string note_of_places(const tile::Program& program);

}  // namespace kw::triton
