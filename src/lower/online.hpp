// Which reductions can be folded in the same walk as the maximum that they depend on.
#pragma once

#include <optional>

#include "kernel/kernel.hpp"

namespace kw::lower {

struct OnlineSum {
  kernel::ExprId maximum = kernel::kNoExpr;
  kernel::ScalarOp power = kernel::ScalarOp::kExp;  // or kExp2
  kernel::ExprId exponent = kernel::kNoExpr;        // a; kNoExpr where there are several
  kernel::ExprId factor = kernel::kNoExpr;          // f, a positive constant; kNoExpr: 1
};

// The maximum m such that `reduction` is Σ exp(f · (a − m)) · b, where neither a nor b depends on m (m may have a
// shift, m − c, that does not either): when m grows from m₀ to m₁, what is summed so far is to be multiplied by
// exp(f · (m₀ − m₁)) (Milakov & Gimelshein 2018). So for powers of 2. Products, quotients, differences, casts between
// floating types, and selections of what scales or is 0 keep that form. nullopt where it is not so.
std::optional<OnlineSum> online_sum(const kernel::Kernel& kernel, kernel::ExprId reduction);

}  // namespace kw::lower
