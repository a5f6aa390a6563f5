// Unrolled linear recurrences of elements, of which loops.hpp tells.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// h[t] = decay[t] · h[t−1] + input[t] for consecutive t becomes kw.linear_steps(input, first, decay, every), with
// h[-1] = first:
// input: [steps, …]; first: […]; decay: as the input, or a number, which is the same for all.
// The result is h, [steps, …]; where `every` is false the last one alone, […]. What `decay` and `input` are of a step
// is a slice of one tensor, the next for each step, or the same for all.
RewriteCounts linear_steps(Graph& graph);

}  // namespace kw
