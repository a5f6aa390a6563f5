// What stands around a tile program's body: its parameters, how its blocks are numbered and launched (a grid of one
// dimension; of elementwise programs as many as theirs has, if no count is beyond what CUDA allows there), the places
// of its lanes.
#pragma once

#include <string>
#include <vector>

#include "emit/triton/index_text.hpp"

namespace kw::triton {

// The decorator and the line that defines the function.
std::vector<std::string> definition_lines(const tile::Program& program);

// A Python function that launches the kernel on the whole grid.
std::string launch_function(const tile::Program& program, const IndexText& indices);

}  // namespace kw::triton
