// Attention whose heads are too wide for one kernel, and for PyTorch's fast ones, as its products and softmax.
#pragma once

#include <optional>

#include "passes/maths.hpp"

namespace kw {

// The operator's result as products and a softmax, where it is in f32, without a mask or dropout, and a head has more
// than 256 features. nullopt for all else.
std::optional<Term> expand_wide_heads(Rewriter& rewriter, const Node& node);

}  // namespace kw
