// Chains of pointwise operators that are shorter another way: relu(relu(x)) = relu(x), clamp(clamp(x)), x·sigmoid(x) =
// silu(x), log(softmax(x)) = log_softmax(x). Each rule keeps NaN, the infinities and the sign of zero, and states its
// numeric tag.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts identities(Graph& graph);

}  // namespace kw
