// A step of the Triton target: in which order the parts of places in memory are added.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Is each part of a place added to the address by itself, so that it may be narrow though the whole is not? So it is of
// programs that map elements and fold them, or walk along rows.
bool adds_part_by_part(const tile::Program& program);

// What is one number for the block comes first: of a place that data decide, in part, and where parts are added one by
// one. What several accesses have of such a place along lanes is a sum by itself.
void order_sums(tile::Program& program);

}  // namespace kw::lower
