// One order of all lanes, from the outermost to the innermost loop and from the slowest to the fastest in memory.
#pragma once

#include <vector>

#include "tile/program.hpp"

namespace kw::lower {

// The lane of a dot's result along which it is vectorised: its last one that only one operand has; -1 where none is.
tile::Symbol column_of(const tile::Program& program, const tile::Instruction& dot);

// [symbol] place in the order; for lanes only. The columns of products come behind their rows and what they sum over;
// apart from that, lanes along which accesses are dense come last.
std::vector<int> rank_lanes(const tile::Program& program);

}  // namespace kw::lower
