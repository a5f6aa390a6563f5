#include "toy/steps.hpp"

#include <map>

#include "lower/dead_code.hpp"

namespace kw::toy {

using tile::Instruction;
using tile::Kind;
using tile::ScalarOp;
using tile::Value;

void subtract_negated(lower::Lowered& lowered) {
  std::map<Value, Value> negated;  // result → operand
  tile::for_each_mutable(lowered.program.body, [&](Instruction& one) {
    if (one.kind != Kind::kOp) return;
    if (one.op == ScalarOp::kNeg) negated[one.results[0]] = one.operands[0];
    if (one.op != ScalarOp::kAdd || !negated.contains(one.operands[1])) return;
    one.op = ScalarOp::kSub;
    one.operands[1] = negated.at(one.operands[1]);
  });
  lower::remove_dead_code(lowered.program);
}

}  // namespace kw::toy
