// Reductions over whole rows and further axes, of what a row operation made of those rows: sum(softmax(x, 1) · y, [0,
// 1]) becomes sum(sum(…, [1]), [0, 1]). The rows are then folded where they are made, on chip, and only one number a
// row goes to memory. Precondition: a floating sum, mean, amax or amin over more axes than those of the row operation,
// all of which it folds. Re-associates.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts rows_first(Graph& graph);

}  // namespace kw
