// Folds of what is the same all along an axis: the sum of n equal elements is n times one of them, their mean and
// maximum is that one.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts broadcasts(Graph& graph);

}  // namespace kw
