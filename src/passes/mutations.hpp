// What a call leaves in its inputs is written when the kernels have run, one input after the other. An output that
// lies in the memory of an input which is written before it
// is looked at gets a copy of its own: in `a, b = b, a` of two buffers the second would get back its own contents,
// and a result that is an input as it was would be the
// input as it is now.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts mutations(Graph& graph);

}  // namespace kw
