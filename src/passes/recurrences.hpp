// Unrolled recurrences, of which loops.hpp tells.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// h[t] = cell(…) for consecutive t, which takes slices in order, becomes kw.rnn_steps(products, first, weight, kind):
//   gates = products[t] + h[t-1] · weightᵀ, with h[-1] = first, in full f32
// products: [steps, batch, rows]; first: [batch, hidden]; weight: [rows, hidden]. Rows are gate after gate, in
// PyTorch's order:
//   "tanh", "relu": h[t] = act(a)
//   "lstm": i, f, g, o; c[t] = σ(f) c[t-1] + σ(i) tanh(g);  h[t] = σ(o) tanh(c[t]). `cell` is what c begins with
//   "gru": r, z, n; n = tanh(products_n[t] + σ(r) (h[t-1] · weight_nᵀ + bias_n));  h[t] = (1 − σ(z)) n + σ(z) h[t-1].
//     `bias`, if there is one, is added to r and z too
// The results are h, [steps, batch, hidden], and of an LSTM the last c, and where more than that are read, all c.
RewriteCounts recurrences(Graph& graph);

}  // namespace kw
