#include "lower/chosen_functions.hpp"

#include "kernel/operations.hpp"
#include "lower/loop_tree.hpp"

namespace kw::lower {

using tile::Instruction;
using tile::Kind;
using tile::Value;

namespace {

constexpr int kFunctionCost = 8;  // instructions of what is worth no second branch

}  // namespace

void compute_before_choices(const tile::Program& program, std::vector<TilePlace>& places) {
  std::vector<int> uses(program.values.size());
  std::vector<const Instruction*> readers(program.values.size());
  tile::for_each(program.body, [&](const Instruction& one) {
    for_each_use(one, [&](Value value, Use) {
      ++uses[value];
      readers[value] = &one;
    });
  });
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind != Kind::kOp || kernel::vector_instructions_of(one.op) < kFunctionCost) return;
    const Value value = one.results[0];
    const bool is_chosen = uses[value] == 1 && readers[value]->kind == Kind::kOp &&
                           readers[value]->op == tile::ScalarOp::kSelect;
    places[value].has_statement = is_chosen && !program.values[value].type.lanes.empty();
  });
}

}  // namespace kw::lower
