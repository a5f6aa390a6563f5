// Loops over lanes that end where their buffers do, instead of masks on every point behind that.
#pragma once

#include <map>
#include <utility>

#include "tile/program.hpp"

namespace kw::lower {

// (lane, loop variable) → points of the lane that matter in the bodies of the loop whose variable it is, −1: outside of
// loops. They may be none, or more than the lane has.
using LaneEnds = std::map<std::pair<tile::Symbol, tile::Symbol>, tile::Index>;

struct EndedProgram {
  tile::Program program;  // without the masks that the ends stand for
  LaneEnds ends;
};

// Finds the lanes of which nothing sees the points behind the end of a mask `lane + … < …`: their stores are masked by
// it, and folds over them take what changes nothing there. Where a lane has one end in a loop and another one outside,
// no value may go from here to there. Lanes of products, copies and renamed tiles are left alone.
EndedProgram end_lanes(tile::Program program);

}  // namespace kw::lower
