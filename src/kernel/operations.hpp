// The scalar operations and reductions that kernels and tile programs are made of: one row each, with the name that
// every text form uses, the number of operands and, for scalar operations, what they cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kw::kernel {

enum class ScalarOp {
  // arithmetic
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kTruncDiv,
  kRemainder /* sign of divisor */,
  kFmod /* sign of dividend */,
  kNeg,
  kAbs,
  kSign,
  kReciprocal,
  kMinimum,
  kMaximum /* propagate NaN */,
  kFmin,
  kFmax /* ignore NaN */,
  kFma,
  // rounding
  kFloor,
  kCeil,
  kTrunc,
  kRound /* half to even */,
  kRoundTf32 /* f32 to the nearest number of TF32's 11 digits, halves away from zero */,
  // transcendental
  kExp,
  kExp2,
  kExpm1,
  kLog,
  kLog2,
  kLog10,
  kLog1p,
  kSqrt,
  kRsqrt,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kAtan2,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kErf,
  kErfc,
  kSigmoid,
  kLogAddExp /* log(exp(a) + exp(b)) */,
  kPow,
  // comparison and logic: results are b1
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIsNan,
  kIsInf,
  kLogicalAnd,
  kLogicalOr,
  kLogicalXor,
  kLogicalNot,
  // integers
  kBitAnd,
  kBitOr,
  kBitXor,
  kBitNot,
  kShiftLeft,
  kShiftRight,
  kSelect,   // operands: condition, then, else
  kBounded,  // operands: index, size (a constant). The index, which data decided; one outside [0, size) is the caller's
             // mistake (docs/contract.md), never an access
  kCast,     // to `dtype`
};

enum class ReduceOp {
  kSum,
  kExtendedSum /* of f64, and not of scans: in more digits than f64 has, rounded once in the end */,
  kProd,
  kMax,
  kMin /* propagate NaN */,
  kAny,
  kAll,
  kArgMax,
  kArgMin,            // index along the flattened reduce axes; first of equals; NaN wins
  kMoments,           // operand x → components 0: mean, 1: Σ(x−mean)²   (Welford / Chan, stable)
  kCombineMoments,    // operands mean, m2, count → the same two over partial moments (Chan et al. 1983)
  kMaxSumExp,         // operand x → components 0: max, 1: Σ exp(x − max)  (online softmax, Milakov & Gimelshein 2018)
  kCombineMaxSumExp,  // operands max, sum → the same two components over partials
  kLogSumExp,         // of a kernel's scans only: log Σ exp(x)
  kFirst,             // of a scan only: what the walk met first
  kSortUp,
  kSortDown,  // of a scan only: the row in order; equals keep theirs, NaN is the largest
};

std::string_view name_of(ScalarOp op);      // "floor_div"
std::string_view name_of(ReduceOp reduce);  // "arg_max"
std::optional<ScalarOp> find_scalar_op(std::string_view name);
std::optional<ReduceOp> find_reduce_op(std::string_view name);

// Roughly what one costs: in vector instructions of a CPU, where a load is one; and in additions, on a GPU.
int vector_instructions_of(ScalarOp op);
int additions_of(ScalarOp op);

int arity_of(ScalarOp op);
int arity_of(ReduceOp reduce);
int components_of(ReduceOp reduce);  // values that it results in
bool is_sort(ReduceOp reduce);
// May a scan by it (max, min, sorts) have a second operand? Component 1 is then that operand where the extreme stands,
// of equals the last, or where the element stood that is here now.
bool takes_along(ReduceOp reduce);
// The values that a scan of so many operands results in.
int components_of_scan(ReduceOp reduce, size_t operands);
bool has_operands_of_scan(ReduceOp reduce, size_t operands);  // may it have so many?

// Is the result b1, whatever the operands are?
bool is_predicate(ScalarOp op);
// The value that changes nothing when a simple fold (sum, prod, max, min, any, all, log_sum_exp) meets it; nullopt for
// the others.
std::optional<double> identity_of(ReduceOp reduce);
// What a simple fold does with what it has so far and the next value; nullopt for the others.
std::optional<ScalarOp> step_of(ReduceOp reduce);

}  // namespace kw::kernel
