// Small reductions unrolled into expressions, over several neighbouring results at once: what windows that overlap
// share is then read and folded once, and stays in registers.
#pragma once

#include <vector>

#include "plan/group_kernel.hpp"

namespace kw::plan {

// Rewrites the kernel so that each point of its axes computes `repeats[axis]` neighbouring points of every parallel
// axis (1 for most), and no reduce axes are left. The offsets of the innermost reduce axis are folded first. Work:
// product(repeats) · points of the reduce axes. False, with the kernel as it was, where that cannot be expressed: a
// reduction other than a simple fold, a lookup, an index with a division that does not follow the repeats.
bool unroll_reductions(GroupKernel& kernel, const std::vector<int64_t>& repeats);

}  // namespace kw::plan
