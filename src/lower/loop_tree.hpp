// The loops over lanes that instructions share, before tiles have places.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// How an instruction uses a value.
enum class Use {
  kPoint,  // each point of its loops, the element at that point
  kWhole,  // elements at other points, too
  kStart,  // what a dot adds to; a loop's first value; a yield: all elements, each once
};
// Its operands, coordinates and mask; where a For ends, and the yields of a For or an If, but nothing else of their
// bodies.
void for_each_use(const tile::Instruction& instruction, const std::function<void(tile::Value, Use)>& visit);

// Does a second operand of a maximum or minimum come along? Of equal extremes the largest of what comes along counts,
// so that no order of the points matters. But each point meets what those before it have left.
bool folds_along(const tile::Instruction& instruction);

// Each instruction but what is repeated, in the loops over its lanes, and with each loop the folds and scans that begin
// before it. `ranks` is the order of lanes (lane_order.hpp).
std::vector<LoopStep> build_loops(const tile::Program& program, const std::vector<int>& ranks,
                                  const std::vector<bool>& is_repeated);

}  // namespace kw::lower
