// Factors in single precision as sums of bfloat16, whose products tensor cores make.
#pragma once

#include <string>

#include "plan/product_kernels.hpp"

namespace kw::plan {

// high + middle + low, which have 24 digits together, or high + low, which have 16; `finite` is high where that is
// finite, else 0. Where it is not, the others are 0.
struct Pieces {
  kernel::ExprId high = kernel::kNoExpr, middle = kernel::kNoExpr, low = kernel::kNoExpr, finite = kernel::kNoExpr;
};

// `count`: two or three. They are named after the value's `name`.
Pieces pieces_of(KernelDraft& draft, const std::string& name, kernel::ExprId value, int count);

}  // namespace kw::plan
