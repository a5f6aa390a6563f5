// Batch normalisation in training mode beside a convolution, written as statistics of each channel and a pointwise
// normalisation.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// On a GPU, where the input comes from a convolution or the result goes to one, element by element: mean and variance
// (var_mean, in f32), the new running statistics, and batch_norm with given statistics. Fusion makes one group of
// them; where a neighbour gives the statistics or takes the normalisation, the two are scheduled apart
// (plan/statistics.hpp).
RewriteCounts statistics(Graph& graph);

}  // namespace kw
