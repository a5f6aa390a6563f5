// y − y where y is the largest or smallest output of a linear layer: 0, or NaN where y is NaN or infinite, which needs
// no product.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// A row's outputs are finite where the row, the weight and the bias are, and its extreme is NaN or infinite where the
// row has a NaN or an infinity: that makes all outputs infinite or NaN. So the difference is Σ (x − x) + Σ (W − W) +
// Σ (b − b). Precondition: the product and its extreme are read by nothing else, at least 16 rows, f32 or f64; weight
// and bias are parameters or buffers. Re-associates: outputs that overflow where nothing infinite came in are 0 here;
// an infinity in a weight is NaN here, where in eager mode an extreme may pass over it.
RewriteCounts self_differences(Graph& graph);

}  // namespace kw
