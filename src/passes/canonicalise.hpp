// One spelling for each computation: overloads and aliases of operators fold into one, copies and conversions that
// change nothing go, views are permute, expand, view, slice, select, as_strided, diagonal or unfold. All rewrites are
// exact, down to NaN, −0 and element types.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts canonicalise(Graph& graph);

// Parts of it, by the kind of operator. Each returns whether the node is replaced and goes; it may also change the node
// in place. What is known of values is of the graph as it was: values that the pass writes are not in the lists.
struct CanonicalContext {
  Rewriter& rewriter;
  Sharing sharing;
  std::vector<int> reads;  // how many operands and outputs name it
};
bool canonicalise_operator(Node& node, CanonicalContext& context);  // pointwise, reductions, factories
bool canonicalise_view(Node& node, CanonicalContext& context);
bool canonicalise_copy(Node& node, CanonicalContext& context);  // clone, to, contiguous, dropout outside training
// A concatenation of views is a view of one of what they show: cat(view(x), view(y)) = view(cat(x, y)).
bool canonicalise_concatenation(Node& node, CanonicalContext& context);

}  // namespace kw
