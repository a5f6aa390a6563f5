// Matrix products are associative: a chain of them is computed in the order that takes less work.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// (A B) C = A (B C), where the other order takes half of the multiplications or less. So two linear layers without
// anything in between, W₂ (W₁ x + b₁) + b₂, are one with W₂ W₁ and W₂ b₁ + b₂, if they narrow: of M rows with K inputs,
// N in between and P outputs, M N (K + P) becomes K P (N + M). Precondition: nothing else reads the inner product,
// f32 or f64 (others round it). Re-associates: infinities meet elsewhere, and may be NaN where they were none.
// Numbers that scale a product, and its bias, stay behind it, where they cost nothing.
RewriteCounts product_chains(Graph& graph);

}  // namespace kw
