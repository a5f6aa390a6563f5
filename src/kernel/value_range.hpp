// Between which numbers values lie, as far as the operations that make them say: where the base of a power is known not
// to be negative, a printer can leave out what the other cases need. NaN stands outside: a range says nothing of it.
#pragma once

#include <limits>
#include <span>

#include "ir/types.hpp"
#include "kernel/operations.hpp"

namespace kw::kernel {

struct ValueRange {
  double low = -std::numeric_limits<double>::infinity();  // 0: never below +0, and never −0
  double high = std::numeric_limits<double>::infinity();
};

// Floats only: of a constant, of what an operation makes of operands in these ranges (`same`: both are one value), and
// of a fold.
ValueRange range_of_constant(double number);
ValueRange range_of(ScalarOp op, DType result, std::span<const ValueRange> operands, bool same);
ValueRange range_of(ReduceOp reduce, const ValueRange& operand);

}  // namespace kw::kernel
