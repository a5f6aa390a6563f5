// Folds that pick one element: Σ over an axis of what is 0 but where the axis' index equals a number of the row's own
// is the element at that number. Losses over classes are written so, by comparing every class with the target, that
// they fuse with what makes the probabilities.
#pragma once

#include <optional>

#include "plan/group_builder.hpp"

namespace kw::plan {

// The sum of `operand` over the kernel's reduce axis without a fold: one element is computed from gathered loads, 0
// where the number is outside of the axis. nullopt where `operand` is no such choice, or cannot be computed at a place
// that data decide.
std::optional<ExprId> picked_sum(GroupBuilder& build, ExprId operand);

}  // namespace kw::plan
