// Values that are computed again wherever they are needed.
#pragma once

#include <vector>

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// [value] Is it a constant, an index, or a condition or sum made of those, of which only single points are used? An
// array of them would be read more slowly than they are computed. In programs of loops that fold, also what costs less
// than an array of it, and what walks read and convert again (walks.hpp). And an operand that its product reads where
// it lies (memory_operands.hpp). `ranks` is the order of lanes (lane_order.hpp).
std::vector<bool> find_repeated(const tile::Program& program, const std::vector<int>& ranks);

// Puts those that are no constants into the outermost loops that have all their lanes, before what needs them.
void place_repeated(const tile::Program& program, const std::vector<bool>& is_repeated, std::vector<LoopStep>& body);

}  // namespace kw::lower
