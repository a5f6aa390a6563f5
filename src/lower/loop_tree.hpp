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

// Is it folded element by element in the loops of what it folds? The others walk over their operand in loops of their
// own.
bool is_simple_fold(const tile::Instruction& instruction);

struct LoopTree {
  std::vector<LoopStep> body;
  // [value] Computed again wherever it is needed: constants, indices, and conditions and sums of them. An array of them
  // would be read more slowly than they are computed.
  std::vector<bool> is_repeated;
};

// `ranks` is the order of lanes (lane_order.hpp), `ends` where loops over lanes end.
LoopTree build_loops(const tile::Program& program, const LaneEnds& ends, const std::vector<int>& ranks);

}  // namespace kw::lower
