// Common subexpressions: of equal pure nodes only the first stays. Two that are both returned stay two, for each has
// its own memory.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts cse(Graph& graph);

}  // namespace kw
