// Loops over lanes that end where their buffers do, instead of masks on every point behind that.
#pragma once

#include <map>
#include <utility>

#include "tile/program.hpp"

namespace kw::lower {

// Points of a lane that matter: they may be none, or more than the lane has.
struct LaneEnd {
  tile::Index end;
  bool whole_vectors = false;  // masks leave out the rest: a loop goes on to whole vectors
};
// (lane, loop variable) → its end in the bodies of the loop whose variable it is, −1: in all of them.
using LaneEnds = std::map<std::pair<tile::Symbol, tile::Symbol>, LaneEnd>;

struct EndedProgram {
  tile::Program program;  // without the masks that the ends stand for
  LaneEnds ends;
};

// Finds the lanes of which nothing sees the points behind the end of a mask `lane + … < …`: their stores are masked by
// it, and folds over them take what changes nothing there. Where a lane has one end in a loop and another one outside,
// no value may go from here to there. Lanes of products, copies and renamed tiles are left alone. A tile that is taken
// side by side and is wider than its axis keeps its masks: its loops go on to whole vectors, since the last elements of
// a short row would cost as much one by one as all others together.
EndedProgram end_lanes(tile::Program program);

}  // namespace kw::lower
