// The names of operations in the text form, one table for printing and parsing.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "emit/kernel_ir.hpp"

namespace kw::kernel_ir {

inline constexpr std::pair<ScalarOp, std::string_view> kScalarOpNames[] = {
    {ScalarOp::kAdd, "add"},
    {ScalarOp::kSub, "sub"},
    {ScalarOp::kMul, "mul"},
    {ScalarOp::kDiv, "div"},
    {ScalarOp::kFloorDiv, "floor_div"},
    {ScalarOp::kTruncDiv, "trunc_div"},
    {ScalarOp::kRemainder, "remainder"},
    {ScalarOp::kFmod, "fmod"},
    {ScalarOp::kNeg, "neg"},
    {ScalarOp::kAbs, "abs"},
    {ScalarOp::kSign, "sign"},
    {ScalarOp::kReciprocal, "reciprocal"},
    {ScalarOp::kMinimum, "minimum"},
    {ScalarOp::kMaximum, "maximum"},
    {ScalarOp::kFmin, "fmin"},
    {ScalarOp::kFmax, "fmax"},
    {ScalarOp::kFma, "fma"},
    {ScalarOp::kFloor, "floor"},
    {ScalarOp::kCeil, "ceil"},
    {ScalarOp::kTrunc, "trunc"},
    {ScalarOp::kRound, "round"},
    {ScalarOp::kExp, "exp"},
    {ScalarOp::kExp2, "exp2"},
    {ScalarOp::kExpm1, "expm1"},
    {ScalarOp::kLog, "log"},
    {ScalarOp::kLog2, "log2"},
    {ScalarOp::kLog10, "log10"},
    {ScalarOp::kLog1p, "log1p"},
    {ScalarOp::kSqrt, "sqrt"},
    {ScalarOp::kRsqrt, "rsqrt"},
    {ScalarOp::kSin, "sin"},
    {ScalarOp::kCos, "cos"},
    {ScalarOp::kTan, "tan"},
    {ScalarOp::kAsin, "asin"},
    {ScalarOp::kAcos, "acos"},
    {ScalarOp::kAtan, "atan"},
    {ScalarOp::kAtan2, "atan2"},
    {ScalarOp::kSinh, "sinh"},
    {ScalarOp::kCosh, "cosh"},
    {ScalarOp::kTanh, "tanh"},
    {ScalarOp::kAsinh, "asinh"},
    {ScalarOp::kAcosh, "acosh"},
    {ScalarOp::kAtanh, "atanh"},
    {ScalarOp::kErf, "erf"},
    {ScalarOp::kErfc, "erfc"},
    {ScalarOp::kSigmoid, "sigmoid"},
    {ScalarOp::kPow, "pow"},
    {ScalarOp::kEqual, "equal"},
    {ScalarOp::kNotEqual, "not_equal"},
    {ScalarOp::kLess, "less"},
    {ScalarOp::kLessEqual, "less_equal"},
    {ScalarOp::kGreater, "greater"},
    {ScalarOp::kGreaterEqual, "greater_equal"},
    {ScalarOp::kIsNan, "is_nan"},
    {ScalarOp::kIsInf, "is_inf"},
    {ScalarOp::kLogicalAnd, "logical_and"},
    {ScalarOp::kLogicalOr, "logical_or"},
    {ScalarOp::kLogicalXor, "logical_xor"},
    {ScalarOp::kLogicalNot, "logical_not"},
    {ScalarOp::kBitAnd, "bit_and"},
    {ScalarOp::kBitOr, "bit_or"},
    {ScalarOp::kBitXor, "bit_xor"},
    {ScalarOp::kBitNot, "bit_not"},
    {ScalarOp::kShiftLeft, "shift_left"},
    {ScalarOp::kShiftRight, "shift_right"},
    {ScalarOp::kSelect, "select"},
    {ScalarOp::kBounded, "bounded"},
    {ScalarOp::kCast, "cast"},
};

inline constexpr std::pair<ReduceOp, std::string_view> kReduceOpNames[] = {
    {ReduceOp::kSum, "sum"},
    {ReduceOp::kProd, "prod"},
    {ReduceOp::kMax, "max"},
    {ReduceOp::kMin, "min"},
    {ReduceOp::kAny, "any"},
    {ReduceOp::kAll, "all"},
    {ReduceOp::kArgMax, "arg_max"},
    {ReduceOp::kArgMin, "arg_min"},
    {ReduceOp::kMoments, "moments"},
    {ReduceOp::kCombineMoments, "combine_moments"},
    {ReduceOp::kMaxSumExp, "max_sum_exp"},
    {ReduceOp::kCombineMaxSumExp, "combine_max_sum_exp"},
    {ReduceOp::kLogSumExp, "log_sum_exp"},
    {ReduceOp::kSortUp, "sort_up"},
    {ReduceOp::kSortDown, "sort_down"},
};

inline constexpr std::pair<BufferRole, std::string_view> kBufferRoleNames[] = {
    {BufferRole::kInput, "input"},
    {BufferRole::kOutput, "output"},
    {BufferRole::kScratch, "scratch"},
};

inline constexpr std::pair<StmtKind, std::string_view> kStmtKindNames[] = {
    {StmtKind::kLet, "let"},   {StmtKind::kStore, "store"},           {StmtKind::kLoop, "loop"},
    {StmtKind::kInit, "init"}, {StmtKind::kAccumulate, "accumulate"}, {StmtKind::kFinish, "finish"},
    {StmtKind::kScan, "scan"},
};

inline constexpr std::pair<AxisKind, std::string_view> kAxisKindNames[] = {
    {AxisKind::kParallel, "parallel"},
    {AxisKind::kReduce, "reduce"},
    {AxisKind::kScan, "scan"},
};

// Of LoopChoices, in the text form and in schedules.
inline constexpr std::pair<int64_t LoopChoices::*, std::string_view> kLoopChoiceNames[] = {
    {&LoopChoices::along, "along"}, {&LoopChoices::columns, "columns"}, {&LoopChoices::tile, "tile"},
    {&LoopChoices::rows, "rows"},   {&LoopChoices::piece, "piece"},     {&LoopChoices::keep, "keep"},
    {&LoopChoices::share, "share"},
};

template <typename Enum, size_t count>
std::string_view find_name(const std::pair<Enum, std::string_view> (&table)[count], Enum value) {
  for (const auto& [key, name] : table)
    if (key == value) return name;
  return "?";
}

template <typename Enum, size_t count>
std::optional<Enum> find_value(const std::pair<Enum, std::string_view> (&table)[count], std::string_view name) {
  for (const auto& [key, text] : table)
    if (text == name) return key;
  return std::nullopt;
}

}  // namespace kw::kernel_ir
