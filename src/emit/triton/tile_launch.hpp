// What stands around a tile program's body: its parameters, how its blocks are numbered and launched (a grid of one
// dimension, so that no count has a limit of its own), the places of its lanes.
#pragma once

#include <string>
#include <vector>

#include "emit/triton/tile_names.hpp"

namespace kw::triton {

// The decorator and the line that defines the function.
std::vector<std::string> definition_lines(const tile::Program& program);

// Lines that set the program's grid symbols from tl.program_id(0), and the lanes that its indices name.
std::vector<std::string> symbol_lines(const tile::Program& program, const IndexNames& names);

// A Python function that launches the kernel on the whole grid.
std::string launch_function(const tile::Program& program, const IndexNames& names);

}  // namespace kw::triton
