// Constants: tensors that hold one number everywhere become that number in the operators that read them, arithmetic
// between them is done here, and what adds nothing (times one, minus zero) goes. Promotion, rounding, NaN and −0 stay
// as they are.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts fold(Graph& graph);

}  // namespace kw
