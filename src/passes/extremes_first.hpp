// The largest (or smallest) of what a nondecreasing function makes of elements is the function of the largest one:
// max_pool2d(tanh(x) · 2 + b) becomes tanh(max_pool2d(x)) · 2 + b, which computes tanh once a window. Precondition: a
// max pooling whose places nobody reads, or amax or amin; before it a chain of pointwise operators that nothing else
// reads, nondecreasing in their operand, of which the deepest is a function that takes many instructions and is bounded
// from below (where the smallest is wanted and a tensor is added, from above too); tensors added on the way are the
// same for all that is folded. Re-associates: a function of the hardware's may fall by one last place where the
// function rises.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts extremes_first(Graph& graph);

}  // namespace kw
