// The order of what a block does between its loads.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Of what stands in the program's body itself: what waits for no load, and is read more than once, comes first; other
// operations, but for those with names, of which one instruction alone reads the result come right before it. So loads
// are on their way together instead of each being waited for by what is made of it: the assembler moves few past what
// stands between them. (What is made of loads and read more than once stays where it is, and need not be kept with all
// that it is made of.)
void delay_operations(tile::Program& program);

}  // namespace kw::lower
