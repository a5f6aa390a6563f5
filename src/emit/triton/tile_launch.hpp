// How a tile program's blocks are numbered and launched: a grid of one dimension, so that no count has a limit of its
// own.
#pragma once

#include <string>
#include <vector>

#include "emit/triton/tile_names.hpp"

namespace kw::triton {

// Lines that set the program's grid symbols from tl.program_id(0).
std::vector<std::string> grid_lines(const tile::Program& program, const IndexNames& names);

// A Python function that launches the kernel on the whole grid.
std::string launch_function(const tile::Program& program, const IndexNames& names);

}  // namespace kw::triton
