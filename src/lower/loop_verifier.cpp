#include "lower/loop_verifier.hpp"

#include <fmt/format.h>

#include "lower/loop_rules.hpp"
#include "support/error.hpp"

namespace kw::lower {

std::string find_loop_fault(const tile::Program& program, const LoopPlan& plan) {
  try {
    if (!plan.body.empty()) check_steps(program, plan);
    if (!plan.places.empty()) check_places(program, plan);
  } catch (const BrokenLoopRule& rule) {
    return fmt::format("loops of tile program '{}'{}: {}", program.name,
                       rule.step.empty() ? "" : ", '" + rule.step + "'", rule.message);
  }
  return "";
}

void verify_loops(const tile::Program& program, const LoopPlan& plan) {
  if (const std::string fault = find_loop_fault(program, plan); !fault.empty())
    throw Error(ErrorKind::kInternal, fault);
}

}  // namespace kw::lower
