// Chains of views: a view that comes back to an earlier place of its chain is that earlier value, and neighbouring
// views of a kind are one. The names of the operators stay (a fused kernel turns them into index maps); where a value
// lies is in its type's strides and offset, counted from its storage root (storage_roots() in rewriter.hpp).
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts layout(Graph& graph);

}  // namespace kw
