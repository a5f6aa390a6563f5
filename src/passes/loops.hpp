// Loops over a sequence, which export unrolls, found again.
//
// - The same operator on each of the slices `x[t]` of one tensor is one operator on the whole: a linear layer, or a
//   pointwise operator, of slices of several tensors too.
// - h[t] = tanh(W·x[t] + U·h[t−1] + b), or relu, or an LSTM's or GRU's cell, written with linear layers or products,
//   with x and h apart or concatenated, is one node, kw.rnn_steps, behind one product of all x with W. Its results are
//   slices of one tensor.
// - h[t] = a[t]·h[t−1] + b[t], element by element, is one node, kw.linear_steps (linear_steps.hpp).
// - A concatenation of all slices of a tensor, in order, is that tensor; where it has others beside, or some of them,
//   those are one part.
//
// They take turns until nothing is left to do: what reads a loop's results in a loop becomes one operator too.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts loops(Graph& graph);

}  // namespace kw
