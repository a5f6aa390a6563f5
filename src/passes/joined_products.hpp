// Linear layers that read the same few rows: queries, keys and values, or gate and up of a SwiGLU. x W₁ᵀ + b₁ and
// x W₂ᵀ + b₂ become columns of x [W₁; W₂]ᵀ + [b₁; b₂]: one call instead of several, which reads x once. A layer without
// a bias beside one that has one gets zeros. Precondition: a module in evaluation mode, whose joined weights are made
// once and kept (emit/kept_weights), as nothing else reads them; at most GraphForms::rows_of_joined_products rows;
// results that are not returned, and views of them that columns of a wider matrix have as well. Re-associates: the
// library may add in another order.
#pragma once

#include "passes/rewriter.hpp"
#include "target/graph_forms.hpp"

namespace kw {

RewriteCounts joined_products(Graph& graph, const GraphForms& forms);

}  // namespace kw
