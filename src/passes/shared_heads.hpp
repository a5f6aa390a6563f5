// Keys and values that several heads of queries share are read where they lie, not repeated in memory.
#pragma once

#include "passes/rewriter.hpp"
#include "target/graph_forms.hpp"

namespace kw {

// Grouped-query attention spells its keys and values k.repeat_interleave(r, dim=-3), or k[:, :, None].expand(…) and a
// reshape: a copy in which each head stands r times. A product of matrices with such a copy (or with it transposed)
// becomes one with the heads themselves, shared along an axis that the left operand gets: q of [b, g·r, m, d] is
// [b, g, r, m, d], k of [b, g, n, d] is [b, g, 1, n, d]. Attention gets them with `enable_gqa` where the target's
// shares heads, but for masked ones in 16 bits, for which the library would repeat them itself, and in its slowest way.
RewriteCounts shared_heads(Graph& graph, const GraphForms& forms);

}  // namespace kw
