// Removes pure nodes that nothing reads. Random operators and assertions stay: their effect is not in their results.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts dead_code(Graph& graph);

}  // namespace kw
