// The masks of dropout on a GPU: drawn by a kernel of our own (kw.keep_mask) from PyTorch's stream, so that what the
// mask does to the tensor fuses with its neighbours and only a byte an element is stored.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// native_dropout(x, p) = x · mask · 1 / (1 − p), bernoulli(p) = mask. Exact. What the library draws itself: float64,
// tensors that are not contiguous, a dropout that nothing of ours stands beside.
RewriteCounts draws(Graph& graph);

}  // namespace kw
