// Unrolled recurrences, of which loops.hpp tells.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// h[t] = act(…) for consecutive t, which takes slices in order, becomes kw.rnn_steps(products, first, weight, kind):
//   h[t] = act(products[t] + h[t-1] · weightᵀ), with h[-1] = first, in full f32
// products: [steps, batch, rows]; first: [batch, hidden]; weight: [rows, hidden]; kind: "tanh" or "relu", with as many
// rows as hidden units, or "lstm", with four times as many, in PyTorch's order of gates, and `cell`, what c begins
// with:
//   i, f, g, o = products[t] + h[t-1] · weightᵀ;  c[t] = σ(f) c[t-1] + σ(i) tanh(g);  h[t] = σ(o) tanh(c[t])
// The results are h, [steps, batch, hidden], and of an LSTM the last c.
RewriteCounts recurrences(Graph& graph);

}  // namespace kw
