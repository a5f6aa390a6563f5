// Products with a diagonal matrix scale rows or columns.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// diag(a) B = a[:, None] · B and B diag(a) = B · a, of floats. Exact, NaN and infinities too: in the product an element
// that is not finite meets zeros in all other rows (columns), which are NaN, so that an element is NaN where its column
// (row) holds another one that is not finite. Sums of zeros are +0, and so is −0 + 0; a zero that is left of a product
// less than a subnormal number may have the other sign.
RewriteCounts diagonal_products(Graph& graph);

}  // namespace kw
