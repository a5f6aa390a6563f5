#include "lower/late_stores.hpp"

#include <algorithm>
#include <iterator>

namespace kw::lower {
namespace {

using tile::Kind;

// Does it take up an element where it stands, and have no loops of its own?
bool is_plain(const LoopStep& step) {
  if (!step.instruction || !step.body.empty()) return false;
  switch (step.instruction->kind) {
    case Kind::kConstant:
    case Kind::kIndex:
    case Kind::kOp:
    case Kind::kRelabel:
    case Kind::kSplit:
    case Kind::kLoad:
    case Kind::kStore:
    case Kind::kFold: return true;
    default: return false;
  }
}

bool is_store(const LoopStep& step) { return step.instruction->kind == Kind::kStore; }
bool is_load(const LoopStep& step) { return step.instruction->kind == Kind::kLoad; }

using StepIterator = std::vector<LoopStep>::iterator;

void order(StepIterator first, StepIterator end) {
  const auto last_load = std::find_if(std::make_reverse_iterator(end), std::make_reverse_iterator(first), is_load);
  const StepIterator loaded = last_load.base();
  const bool reads_again = std::any_of(first, loaded, [&](const LoopStep& store) {
    return is_store(store) && std::any_of(first, loaded, [&](const LoopStep& load) {
             return is_load(load) && load.instruction->access.buffer == store.instruction->access.buffer;
           });
  });
  if (!reads_again) std::stable_partition(first, loaded, [](const LoopStep& step) { return !is_store(step); });
}

void order_loops(std::vector<LoopStep>& steps, bool in_loop) {
  for (StepIterator at = steps.begin(); at != steps.end();) {
    const StepIterator end = std::find_if_not(at, steps.end(), is_plain);
    if (in_loop) order(at, end);
    if (end == steps.end()) return;
    const bool is_loop = !end->instruction || end->instruction->kind == Kind::kFor;
    order_loops(end->body, in_loop || is_loop);
    order_loops(end->otherwise_body, in_loop);
    at = std::next(end);
  }
}

}  // namespace

void put_stores_behind_loads(std::vector<LoopStep>& steps) { order_loops(steps, false); }

}  // namespace kw::lower
