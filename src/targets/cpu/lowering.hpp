// From a tile program to loops of a CPU: the target's own steps of lowering.
#pragma once

#include <memory>
#include <span>

#include "lower/pipeline.hpp"

namespace kw::cpu {

// In order. The first takes masks out of the program where loops can end instead; the others make its loop plan
// (lower/loop_plan.hpp), which the printer spells.
std::span<const lower::TargetStep> lowering_steps();

// The loops of a program that is only priced, and keeps its masks: all steps but the first, and but the last two, which
// the price does not depend on. Not verified.
std::unique_ptr<const lower::Lowered> priced_loops(const tile::Program& program);

}  // namespace kw::cpu
