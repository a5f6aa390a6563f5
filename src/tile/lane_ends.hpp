// Loops over lanes that end where their buffers do, instead of masks on every point behind that.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "tile/program.hpp"

namespace kw::tile {

// Points of a lane that matter: they may be none, or more than the lane has.
struct LaneEnd {
  Index end;
  bool whole_vectors = false;  // masks leave out the rest: a loop goes on to whole vectors
};

// (lane, loop variable) → its end in the bodies of the loop whose variable it is, −1: in all of them.
using LaneEnds = std::map<std::pair<Symbol, Symbol>, LaneEnd>;

// Where the lane ends inside these loops, whose variables are given, the outermost first; none: nullptr.
inline const LaneEnd* end_of(const LaneEnds& ends, Symbol lane, const std::vector<Symbol>& loops) {
  for (size_t i = loops.size() + 1; i-- > 0;)
    if (const auto found = ends.find({lane, i == 0 ? -1 : loops[i - 1]}); found != ends.end()) return &found->second;
  return nullptr;
}

// Does the lane end anywhere?
inline bool has_end(const LaneEnds& ends, Symbol lane) {
  const auto found = ends.lower_bound({lane, -1});
  return found != ends.end() && found->first.first == lane;
}

}  // namespace kw::tile
