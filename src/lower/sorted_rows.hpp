// Where sorts of a loop plan read their rows, and where they leave them.
#pragma once

#include <vector>

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Sets what LoopStep says of sorts. Tiles have places.
void find_sorted_rows(const tile::Program& program, LoopPlan& plan);

// The tiles that the sort reads and leaves in rows, if `load` reads its operand from memory (nullptr: not): of results
// those that anything reads.
std::vector<tile::Value> tiles_of_sort(const LoopPlan& plan, const tile::Instruction& sort,
                                       const tile::Instruction* load);

}  // namespace kw::lower
