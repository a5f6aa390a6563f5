// Unrolled recurrences, of which loops.hpp tells.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// h[t] = act(…) for consecutive t, which takes slices in order, becomes kw.rnn_steps(products, first, weight, kind):
//   h[t] = act(products[t] + h[t-1] · weightᵀ), with h[-1] = first, in full f32
// products: [steps, batch, hidden]; first: [batch, hidden]; weight: [hidden, hidden], row and column; kind: "tanh" or
// "relu". The result is h, [steps, batch, hidden].
RewriteCounts recurrences(Graph& graph);

}  // namespace kw
