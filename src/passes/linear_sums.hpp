// Algebra of linear maps: what folds the outputs of a matrix product, or its rows, is a smaller product.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// Of y = x Wᵀ + b, with numbers that scale it and tensors that are added to it in between:
//   - the sum or mean over the outputs is x · sum(W) + sum(b), a product of a matrix and a vector: as many times less
//     work as there are outputs; and over the rows as well, the sum or mean of that;
//   - y · v, also spelt (y * v).sum(-1), is x · (Wᵀ v) + b · v;
//   - the sum or mean over 16 rows or more is a product with the summed rows of x;
//   - an average over windows of k outputs is a product with a k-th of the columns.
// Only where nothing else reads the product, in f32 and f64 (others round it in between), and for at least 16 rows.
// Where an infinity meets several outputs, their sum may be infinite where eager's is NaN.
RewriteCounts linear_sums(Graph& graph);

}  // namespace kw
