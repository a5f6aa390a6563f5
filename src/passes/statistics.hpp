// Normalisation beside a convolution, written as statistics of what it folds and a pointwise normalisation.
#pragma once

#include "passes/rewriter.hpp"
#include "target/graph_forms.hpp"

namespace kw {

// Where convolutions make statistics, batch norms in training mode whose input comes from a convolution or whose result
// goes to one, element by element, and group and instance norms of what comes from one: mean and variance (var_mean, in
// f32), the new running statistics, and batch_norm with given statistics. Fusion makes one group of them; where a
// neighbour gives the statistics or takes the normalisation, the two are scheduled apart (plan/statistics.hpp).
RewriteCounts statistics(Graph& graph, const GraphForms& forms);

// There, too, means over all positions of what is made of a convolution's result element by element, written as such
// statistics, so that the convolution can make them and need not store what is averaged.
RewriteCounts position_means(Graph& graph, const GraphForms& forms);

}  // namespace kw
