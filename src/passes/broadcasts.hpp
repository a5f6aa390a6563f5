// Folds of what is the same all along an axis: the sum of n equal elements is n times one of them, their mean and
// maximum is that one. So along an axis of one element: there they are views, x + 0 (which makes +0 of −0, as a sum
// does) or x − x (NaN where x is NaN or infinite, as a softmax is).
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts broadcasts(Graph& graph);

}  // namespace kw
