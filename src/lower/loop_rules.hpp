// The two parts of the verifier of loop plans (loop_verifier.hpp).
#pragma once

#include <string>

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Thrown by the checks. `step`: where the rule is broken, in one line (loop_text.hpp); empty: in a place.
struct BrokenLoopRule {
  std::string message, step;
};

void check_steps(const tile::Program& program, const LoopPlan& plan);
void check_places(const tile::Program& program, const LoopPlan& plan);

}  // namespace kw::lower
