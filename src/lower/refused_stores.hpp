// Stores behind indices that may be refused.
#pragma once

#include <vector>

#include "lower/loop_plan.hpp"

namespace kw::lower {

// What a step and all inside do.
struct RefusedStores {
  bool refuses = false;  // an index may lie outside its buffer, so that the function says which it was
  bool stores = false;   // data decide where: behind a refused index that may be a place which the caller did not name
};
RefusedStores find_refused_stores(const LoopStep& step);

// Marks what nothing reaches behind a refused index (LoopStep::unless_refused): steps of a loop that have such stores
// inside, where the loop goes on, and stores themselves.
void mark_refused_stores(const tile::Program& program, std::vector<LoopStep>& steps);

}  // namespace kw::lower
