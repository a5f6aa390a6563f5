// Algebra of linear maps: what sums or averages the outputs of a matrix product is a product with the summed matrix.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// sum(x Wᵀ + b) over the outputs is x · sum(W) + sum(b), a product of a matrix and a vector: as many times less work as
// there are outputs. So with a mean, with numbers that scale the product, with tensors added to it; and an average over
// windows of k outputs is a product with a k-th of the columns. Only where nothing else reads the product, in f32 and
// f64 (others round it in between), and for at least 16 rows. Where an infinity meets several outputs, their sum may be
// infinite where eager's is NaN.
RewriteCounts linear_sums(Graph& graph);

}  // namespace kw
