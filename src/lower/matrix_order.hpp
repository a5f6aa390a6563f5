// Products of matrices in the order in which they are written.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Puts the operand with the last lane of a dot's sum, the columns, behind the one with the rows.
void put_left_matrices_first(tile::Program& program);

}  // namespace kw::lower
