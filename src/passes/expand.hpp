// Losses and distances become the pointwise operators and reductions of their definitions, which fuse; the formulas are
// PyTorch's own (aten/src/ATen/native/Loss.cpp, LossNLL.cpp, Distance.cpp). Softmax, norms, pooling, attention and
// recurrent layers stay whole. Weighted or smoothed cross entropy, the multi-margin losses and CTC stay library calls.
#pragma once

#include "passes/rewriter.hpp"
#include "target/graph_forms.hpp"

namespace kw {

RewriteCounts expand(Graph& graph, const GraphForms& forms);

}  // namespace kw
