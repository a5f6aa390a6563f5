// A step of lowering: threads that each own a range of the places to which data send points.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Every store is in order, at a place that one value decides; points that meet have the same value. Where there are at
// least so many threads, each walks all that the program does, and stores what falls into its own range of that value:
// every element still sees its points in order. Where one value decides all places, whatever is not needed to know it
// is left to its owner.
void own_places(tile::Program& program, int threads);

}  // namespace kw::lower
