// Finds where loops over lanes can end instead of masks on every point behind that (tile/lane_ends.hpp).
#pragma once

#include "tile/lane_ends.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Finds the lanes of which nothing sees the points behind the end of a mask `lane + … < …`: their stores are masked by
// it, and folds over them take what changes nothing there. Where a lane has one end in a loop and another one outside,
// no value may go from here to there. Lanes of products, copies and renamed tiles are left alone. A tile that is taken
// side by side and is wider than its axis keeps its masks: its loops go on to whole vectors, since the last elements of
// a short row would cost as much one by one as all others together.
// The program loses the masks that the ends stand for.
tile::LaneEnds end_lanes(tile::Program& program);

}  // namespace kw::lower
