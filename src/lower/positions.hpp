// Positions that are only compared.
#pragma once

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Positions outside of tiles that are only compared, with one another and with whole numbers, are written where they
// are compared, as they are counted: none of them is narrowed to its type first.
void write_compared_positions(const tile::Program& program, LoopPlan& plan);

}  // namespace kw::lower
