// Bytes that a fusion group moves between memory and its kernel: what groupings are compared by before anything is
// lowered.
#pragma once

#include <span>
#include <vector>

#include "plan/domain.hpp"

namespace kw::plan {

inline constexpr double kLaunchBytes = 1 << 20;  // moved in the time that a kernel takes to begin and end

// Bytes. What kernels make of weights alone is kept between calls of a module in evaluation mode if it is no less.
inline constexpr int64_t kWorthKeeping = 1 << 14;

struct MovedBytes {
  double read = 0, written = 0;
};

// Each tensor from outside of `nodes` (ascending) read once, as far as the nodes reach into it, and each of `outputs`
// written once.
MovedBytes moved_bytes(const GraphFacts& facts, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs);
double bytes_moved(const GraphFacts& facts, std::span<const NodeId> nodes, const std::vector<ValueId>& outputs);

}  // namespace kw::plan
