// Where a loop over a reduce axis may end before the axis does: windows and bags whose length only an index or the data
// tell.
#pragma once

#include <span>

#include "emit/kernel_ir.hpp"

namespace kw::kernel_ir {

// The expression, an integer that does not vary along serial axes, from which place on along `axis` none of the Reduces
// takes anything in, for each says so by a condition of its own (axis < expression). kNoExpr where there is no such
// expression.
ExprId stop_of(const Kernel& kernel, int axis, std::span<const ExprId> reduces);

}  // namespace kw::kernel_ir
