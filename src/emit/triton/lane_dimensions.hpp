// Dimensions of tiles as Triton text, in programs whose tiles all have as many (tile::Program::rank).
#pragma once

#include <string>
#include <vector>

#include "tile/program.hpp"

namespace kw::triton {

// Of tiles with these lanes, the others of size 1: "(1, 64)".
std::string shape_of(const tile::Program& program, const std::vector<tile::Symbol>& lanes);
// Behind a tile along one lane: "[None, :]", or nothing.
std::string brackets(const tile::Program& program, tile::Symbol lane);
// Behind a tile with the lanes `own` that is used as one with `lanes`: "[:, None]" where these are stacked.
std::string spread(const tile::Program& program, const std::vector<tile::Symbol>& own,
                   const std::vector<tile::Symbol>& lanes);

}  // namespace kw::triton
