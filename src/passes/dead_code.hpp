// Removes pure nodes that nothing reads. Random operators and assertions stay: their effect is not in their results.
#pragma once

#include <vector>

#include "passes/rewriter.hpp"

namespace kw {

// [node] Is it read, by what is returned or has an effect, or has it an effect itself?
std::vector<bool> live_nodes(const Graph& graph);

RewriteCounts dead_code(Graph& graph);

}  // namespace kw
