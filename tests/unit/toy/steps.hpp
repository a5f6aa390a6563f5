// The toy's own steps of lowering.
#pragma once

#include "lower/pipeline.hpp"

namespace kw::toy {

void subtract_negated(lower::Lowered& lowered);  // a + (-b) → a - b

}  // namespace kw::toy
