// Which dimension of tiles each lane is, in programs whose tiles all have as many (tile::maps_and_folds).
#pragma once

#include <string>
#include <vector>

#include "tile/program.hpp"

namespace kw::triton {

// Lanes have dimensions of their own, in order; but one that is folded shares that of a lane which it never meets in a
// tile: a row's few parts, which are folded before its elements are computed. So these tiles have fewer dimensions.
// Where blocks share rows, parts and elements are both folded, and share one, too. Lanes along which tiles are stacked
// are a dimension more, behind the others, of those that have them alone.
struct LaneDimensions {
  std::vector<int> of_lane;  // [symbol] −1: no lane, or stacked
  int count = 0;
  std::vector<bool> stacked = {};  // [symbol]

  // Of tiles with these lanes, the others of size 1: "(1, 64)".
  std::string shape(const tile::Program& program, const std::vector<tile::Symbol>& lanes) const;
  // Behind a tile along one lane: "[None, :]", or nothing.
  std::string brackets(tile::Symbol lane) const;
  // Behind a tile with the lanes `own` that is used as one with `lanes`: "[:, None]" where these are stacked.
  std::string spread(const std::vector<tile::Symbol>& own, const std::vector<tile::Symbol>& lanes) const;

 private:
  bool is_stacked(const std::vector<tile::Symbol>& lanes) const;
};

LaneDimensions lane_dimensions(const tile::Program& program);

}  // namespace kw::triton
