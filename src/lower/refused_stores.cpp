#include "lower/refused_stores.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;

void look_at(const Instruction& one, RefusedStores& found) {
  found.refuses = found.refuses || (one.kind == Kind::kOp && one.op == tile::ScalarOp::kBounded);
  found.stores = found.stores || (one.kind == Kind::kStore && tile::is_decided_by_data(one.access));
}

void look_at(const LoopStep& step, RefusedStores& found) {
  if (step.instruction) look_at(*step.instruction, found);
  for (const LoopStep& inner : step.body) look_at(inner, found);
  for (const LoopStep& inner : step.otherwise_body) look_at(inner, found);
}

// `is_accepted`: no index can have been refused here.
void mark(std::vector<LoopStep>& steps, bool in_loop, bool& is_accepted) {
  const bool was_accepted = is_accepted;
  for (LoopStep& step : steps) {
    const RefusedStores found = find_refused_stores(step);
    const bool is_loop = !step.instruction || step.instruction->kind == Kind::kFor;
    if (found.refuses) is_accepted = false;
    if (found.stores && !found.refuses && !is_accepted) {
      const bool goes_on = in_loop && !step.body.empty();
      step.unless_refused = goes_on || (step.instruction && step.instruction->kind == Kind::kStore);
      is_accepted = goes_on;
    }
    mark(step.body, in_loop || is_loop, is_accepted);
    mark(step.otherwise_body, in_loop || is_loop, is_accepted);
  }
  is_accepted = was_accepted && is_accepted;
}

}  // namespace

RefusedStores find_refused_stores(const LoopStep& step) {
  RefusedStores found;
  look_at(step, found);
  return found;
}

void mark_refused_stores(const tile::Program& program, std::vector<LoopStep>& steps) {
  // Other blocks, and other threads, may have refused one before.
  RefusedStores all;
  tile::for_each(program.body, [&](const Instruction& one) { look_at(one, all); });
  bool is_accepted = false;
  if (all.refuses) mark(steps, false, is_accepted);
}

}  // namespace kw::lower
