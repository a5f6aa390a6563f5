// Bytes that a fusion group moves between memory and its kernel: what groupings are compared by before anything is
// lowered.
#pragma once

#include <span>
#include <vector>

#include "plan/domain.hpp"

namespace kw::plan {

inline constexpr double kLaunchBytes = 1 << 20;  // moved in the time that a kernel takes to begin and end

// Each tensor from outside of `nodes` (ascending) read once, as far as the nodes reach into it, and each of `outputs`
// written once.
double bytes_moved(const GraphFacts& facts, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs);

}  // namespace kw::plan
