#include "lower/positions.hpp"

#include <algorithm>

#include "kernel/operations.hpp"
#include "lower/loop_tree.hpp"

namespace kw::lower {

using tile::Instruction;
using tile::Kind;
using tile::Value;

void write_compared_positions(const tile::Program& program, LoopPlan& plan) {
  std::vector<bool> is_position(program.values.size()), is_compared(program.values.size()),
      is_read(program.values.size());
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind == Kind::kIndex) is_position[one.results[0]] = program.values[one.results[0]].type.lanes.empty();
  });
  const auto is_whole_number = [&](Value value) {
    return plan.places[value].home == Home::kWritten && !is_floating(program.values[value].type.dtype);
  };
  tile::for_each(program.body, [&](const Instruction& one) {
    const bool compares = one.kind == Kind::kOp && kernel::is_predicate(one.op) && one.operands.size() == 2 &&
                          std::all_of(one.operands.begin(), one.operands.end(),
                                      [&](Value operand) { return is_position[operand] || is_whole_number(operand); });
    for_each_use(one, [&](Value value, Use) { (compares ? is_compared : is_read)[value] = true; });
  });
  for (size_t value = 0; value < plan.places.size(); ++value)
    if (is_position[value] && is_compared[value] && !is_read[value]) plan.places[value].home = Home::kWritten;
}

}  // namespace kw::lower
