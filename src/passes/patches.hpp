// Convolutions that read each element of their image once: windows that lie side by side (the kernel as long as the
// stride, as in patch embeddings), or a single one. conv(x, W, b) becomes linear(patches of x, W, b): one copy and one
// product of matrices. Precondition: the target asks for it (GraphForms::patches_as_products); no padding, dilation or
// groups, dense image and weight in f32 or f64, more than one tap. Re-associates.
#pragma once

#include "passes/rewriter.hpp"
#include "target/graph_forms.hpp"

namespace kw {

RewriteCounts patches(Graph& graph, const GraphForms& forms);

}  // namespace kw
