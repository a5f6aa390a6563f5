// Between which numbers an expression's values lie, as far as its operators say: where the base of a power is known not
// to be negative, a printer can leave out what the other cases need. NaN stands outside: a range says nothing of it.
#pragma once

#include <limits>

#include "emit/kernel_ir.hpp"

namespace kw::kernel_ir {

struct ValueRange {
  double low = -std::numeric_limits<double>::infinity();  // 0: never below +0, and never −0
  double high = std::numeric_limits<double>::infinity();
};

// Floats only. Nearly linear in the expressions below `id`.
ValueRange value_range(const Kernel& kernel, ExprId id);

}  // namespace kw::kernel_ir
