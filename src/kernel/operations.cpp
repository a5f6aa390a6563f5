#include "kernel/operations.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

namespace kw::kernel {
namespace {

struct ScalarRow {
  ScalarOp op;
  std::string_view name;
  int arity;
  int vector_instructions;  // on a CPU; 100: a call for each lane
  int additions;            // that a GPU does in the time
  bool predicate = false;
};

constexpr ScalarRow kScalarRows[] = {
    {ScalarOp::kAdd, "add", 2, 1, 1},
    {ScalarOp::kSub, "sub", 2, 1, 1},
    {ScalarOp::kMul, "mul", 2, 1, 1},
    {ScalarOp::kDiv, "div", 2, 4, 4},
    {ScalarOp::kFloorDiv, "floor_div", 2, 100, 20},
    {ScalarOp::kTruncDiv, "trunc_div", 2, 100, 20},
    {ScalarOp::kRemainder, "remainder", 2, 100, 20},
    {ScalarOp::kFmod, "fmod", 2, 100, 20},
    {ScalarOp::kNeg, "neg", 1, 1, 1},
    {ScalarOp::kAbs, "abs", 1, 1, 1},
    {ScalarOp::kSign, "sign", 1, 1, 1},
    {ScalarOp::kReciprocal, "reciprocal", 1, 4, 4},
    {ScalarOp::kMinimum, "minimum", 2, 1, 1},
    {ScalarOp::kMaximum, "maximum", 2, 1, 1},
    {ScalarOp::kFmin, "fmin", 2, 1, 1},
    {ScalarOp::kFmax, "fmax", 2, 1, 1},
    {ScalarOp::kFma, "fma", 3, 1, 1},
    {ScalarOp::kFloor, "floor", 1, 1, 1},
    {ScalarOp::kCeil, "ceil", 1, 1, 1},
    {ScalarOp::kTrunc, "trunc", 1, 1, 1},
    {ScalarOp::kRound, "round", 1, 1, 1},
    {ScalarOp::kRoundTf32, "tf32", 1, 1, 1},
    {ScalarOp::kExp, "exp", 1, 20, 10},
    {ScalarOp::kExp2, "exp2", 1, 20, 10},
    {ScalarOp::kExpm1, "expm1", 1, 20, 10},
    {ScalarOp::kLog, "log", 1, 20, 10},
    {ScalarOp::kLog2, "log2", 1, 20, 10},
    {ScalarOp::kLog10, "log10", 1, 20, 10},
    {ScalarOp::kLog1p, "log1p", 1, 20, 10},
    {ScalarOp::kSqrt, "sqrt", 1, 4, 4},
    {ScalarOp::kRsqrt, "rsqrt", 1, 4, 4},
    {ScalarOp::kSin, "sin", 1, 40, 24},
    {ScalarOp::kCos, "cos", 1, 40, 24},
    {ScalarOp::kTan, "tan", 1, 100, 1},
    {ScalarOp::kAsin, "asin", 1, 100, 1},
    {ScalarOp::kAcos, "acos", 1, 100, 1},
    {ScalarOp::kAtan, "atan", 1, 100, 1},
    {ScalarOp::kAtan2, "atan2", 2, 100, 24},
    {ScalarOp::kSinh, "sinh", 1, 100, 1},
    {ScalarOp::kCosh, "cosh", 1, 100, 1},
    {ScalarOp::kTanh, "tanh", 1, 20, 24},
    {ScalarOp::kAsinh, "asinh", 1, 100, 1},
    {ScalarOp::kAcosh, "acosh", 1, 100, 1},
    {ScalarOp::kAtanh, "atanh", 1, 100, 1},
    {ScalarOp::kErf, "erf", 1, 20, 24},
    {ScalarOp::kErfc, "erfc", 1, 100, 24},
    {ScalarOp::kSigmoid, "sigmoid", 1, 20, 10},
    {ScalarOp::kLogAddExp, "log_add_exp", 2, 1, 1},
    {ScalarOp::kPow, "pow", 2, 40, 24},
    {ScalarOp::kEqual, "equal", 2, 1, 1, true},
    {ScalarOp::kNotEqual, "not_equal", 2, 1, 1, true},
    {ScalarOp::kLess, "less", 2, 1, 1, true},
    {ScalarOp::kLessEqual, "less_equal", 2, 1, 1, true},
    {ScalarOp::kGreater, "greater", 2, 1, 1, true},
    {ScalarOp::kGreaterEqual, "greater_equal", 2, 1, 1, true},
    {ScalarOp::kIsNan, "is_nan", 1, 1, 1, true},
    {ScalarOp::kIsInf, "is_inf", 1, 1, 1, true},
    {ScalarOp::kLogicalAnd, "logical_and", 2, 1, 1, true},
    {ScalarOp::kLogicalOr, "logical_or", 2, 1, 1, true},
    {ScalarOp::kLogicalXor, "logical_xor", 2, 1, 1, true},
    {ScalarOp::kLogicalNot, "logical_not", 1, 1, 1, true},
    {ScalarOp::kBitAnd, "bit_and", 2, 1, 1},
    {ScalarOp::kBitOr, "bit_or", 2, 1, 1},
    {ScalarOp::kBitXor, "bit_xor", 2, 1, 1},
    {ScalarOp::kBitNot, "bit_not", 1, 1, 1},
    {ScalarOp::kShiftLeft, "shift_left", 2, 1, 1},
    {ScalarOp::kShiftRight, "shift_right", 2, 1, 1},
    {ScalarOp::kSelect, "select", 3, 1, 1},
    {ScalarOp::kBounded, "bounded", 2, 1, 1},
    {ScalarOp::kCast, "cast", 1, 1, 1},
};

struct ReduceRow {
  ReduceOp op;
  std::string_view name;
  int arity;
  int components;
};

constexpr ReduceRow kReduceRows[] = {
    {ReduceOp::kSum, "sum", 1, 1},
    {ReduceOp::kExtendedSum, "extended_sum", 1, 1},
    {ReduceOp::kProd, "prod", 1, 1},
    {ReduceOp::kMax, "max", 1, 1},
    {ReduceOp::kMin, "min", 1, 1},
    {ReduceOp::kAny, "any", 1, 1},
    {ReduceOp::kAll, "all", 1, 1},
    {ReduceOp::kArgMax, "arg_max", 1, 1},
    {ReduceOp::kArgMin, "arg_min", 1, 1},
    {ReduceOp::kMoments, "moments", 1, 2},
    {ReduceOp::kCombineMoments, "combine_moments", 3, 2},
    {ReduceOp::kMaxSumExp, "max_sum_exp", 1, 2},
    {ReduceOp::kCombineMaxSumExp, "combine_max_sum_exp", 2, 2},
    {ReduceOp::kLogSumExp, "log_sum_exp", 1, 1},
    {ReduceOp::kFirst, "first", 1, 1},
    {ReduceOp::kSortUp, "sort_up", 1, 1},
    {ReduceOp::kSortDown, "sort_down", 1, 1},
};

// Rows stand in the order of their enumeration: `static_assert` below.
template <typename Row, size_t count>
constexpr bool in_order(const Row (&rows)[count]) {
  for (size_t i = 0; i < count; ++i)
    if (static_cast<size_t>(rows[i].op) != i) return false;
  return true;
}
static_assert(in_order(kScalarRows) && std::size(kScalarRows) == static_cast<size_t>(ScalarOp::kCast) + 1);
static_assert(in_order(kReduceRows) && std::size(kReduceRows) == static_cast<size_t>(ReduceOp::kSortDown) + 1);

const ScalarRow& row_of(ScalarOp op) { return kScalarRows[static_cast<size_t>(op)]; }
const ReduceRow& row_of(ReduceOp op) { return kReduceRows[static_cast<size_t>(op)]; }

}  // namespace

std::string_view name_of(ScalarOp op) { return row_of(op).name; }
std::string_view name_of(ReduceOp reduce) { return row_of(reduce).name; }

std::optional<ScalarOp> find_scalar_op(std::string_view name) {
  for (const ScalarRow& row : kScalarRows)
    if (row.name == name) return row.op;
  return std::nullopt;
}

std::optional<ReduceOp> find_reduce_op(std::string_view name) {
  for (const ReduceRow& row : kReduceRows)
    if (row.name == name) return row.op;
  return std::nullopt;
}

int arity_of(ScalarOp op) { return row_of(op).arity; }
int vector_instructions_of(ScalarOp op) { return row_of(op).vector_instructions; }
int additions_of(ScalarOp op) { return row_of(op).additions; }
int arity_of(ReduceOp reduce) { return row_of(reduce).arity; }
int components_of(ReduceOp reduce) { return row_of(reduce).components; }
bool is_sort(ReduceOp reduce) { return reduce == ReduceOp::kSortUp || reduce == ReduceOp::kSortDown; }

bool takes_along(ReduceOp reduce) { return reduce == ReduceOp::kMax || reduce == ReduceOp::kMin || is_sort(reduce); }

int components_of_scan(ReduceOp reduce, size_t operands) {
  return takes_along(reduce) && operands == 2 ? 2 : components_of(reduce);
}

bool has_operands_of_scan(ReduceOp reduce, size_t operands) {
  if (reduce == ReduceOp::kExtendedSum) return false;
  return static_cast<int>(operands) == arity_of(reduce) || (takes_along(reduce) && operands == 2);
}

bool is_predicate(ScalarOp op) { return row_of(op).predicate; }

std::optional<double> identity_of(ReduceOp reduce) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kExtendedSum:
    case ReduceOp::kAny: return 0.0;
    case ReduceOp::kProd:
    case ReduceOp::kAll: return 1.0;
    case ReduceOp::kMax:
    case ReduceOp::kLogSumExp: return -kInfinity;
    case ReduceOp::kMin: return kInfinity;
    default: return std::nullopt;
  }
}

std::optional<ScalarOp> step_of(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kExtendedSum: return ScalarOp::kAdd;
    case ReduceOp::kProd: return ScalarOp::kMul;
    case ReduceOp::kMax: return ScalarOp::kMaximum;
    case ReduceOp::kMin: return ScalarOp::kMinimum;
    case ReduceOp::kLogSumExp: return ScalarOp::kLogAddExp;
    case ReduceOp::kAny: return ScalarOp::kLogicalOr;
    case ReduceOp::kAll: return ScalarOp::kLogicalAnd;
    default: return std::nullopt;
  }
}

}  // namespace kw::kernel
