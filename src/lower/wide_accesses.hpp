// Elements side by side that one instruction can read or write: the neighbours that windows share.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Of what stands in the program's body itself: where a lane steps over a multiple of four elements, loads of two to
// four elements of the same aligned four become one load with a lane more, taken apart by an unstack; where it steps
// over two or four elements that are all stored, one store writes a stack of them. Where nothing stored is read again,
// stores come last, so that no load waits for one.
void widen_accesses(tile::Program& program);

}  // namespace kw::lower
