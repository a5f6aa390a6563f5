// Single numbers and the scalar operations on them: what kernels' evaluator and tile programs' interpreter compute
// with.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/types.hpp"
#include "kernel/operations.hpp"

namespace kw::kernel {

// A number of some dtype: `real` for floating types, `whole` for integral types and b1.
struct Number {
  double real = 0.0;
  int64_t whole = 0;
};

// Many of them: one of the two is filled, as the dtype asks.
struct Numbers {
  std::vector<double> reals;
  std::vector<int64_t> wholes;
};

inline bool is_real(DType dtype) { return is_floating(dtype); }

// The nearest value of the type (ties to even; overflow to infinity, saturation for f8e4m3fn as PyTorch has it;
// integers wrap).
double round_to(DType dtype, double value);
int64_t wrap_to(DType dtype, int64_t value);
// The byte that stands for the nearest 8-bit float.
uint8_t byte_of_float8(DType dtype, double value);
double round_to_tf32(double value);  // of f32, to 11 significant bits; halves away from zero, as the hardware rounds

// op of operands of `operand_type`, as a number of `result_type`, in double precision and not rounded yet. Integer
// division by zero is 0. Casts between floats and integers truncate.
Number apply(ScalarOp op, DType operand_type, DType result_type, const Number* operands);

// A fold of simple reductions (sum, prod, max, min, any, all, log_sum_exp), one step.
Number fold(ReduceOp reduce, DType dtype, const Number& left, const Number& right);
Number identity(ReduceOp reduce, DType dtype);
// Of a sort: does one element stand before the other, wherever they stood? NaN is the largest.
bool stands_before(ReduceOp sort, DType dtype, const Number& left, const Number& right);
// Of a running maximum or minimum: is the next element the extreme? The last of equals is, and the last NaN.
bool takes_over(ReduceOp extreme, DType dtype, const Number& next, const Number& best);

}  // namespace kw::kernel
