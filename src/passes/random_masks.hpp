// The masks of dropout on a GPU: computed by a kernel of our own (kw.keep_mask) from PyTorch's stream, so that what the
// mask does to the tensor fuses with its neighbours and only a byte an element is stored.
#pragma once

#include "passes/rewriter.hpp"
#include "target/graph_forms.hpp"

namespace kw {

// native_dropout(x, p) = x · mask · 1 / (1 − p), bernoulli(p) = mask. Exact. Left to the library: float64, tensors that
// are not contiguous, a dropout with no generated kernel beside it.
RewriteCounts random_masks(Graph& graph, const GraphForms& forms);

}  // namespace kw
