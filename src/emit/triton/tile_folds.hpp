// Folds of tiles along one of their dimensions, or all (`axis` "None"), as Triton text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "emit/triton/expressions.hpp"

namespace kw::triton {

// The helper (helpers.hpp) by which Triton has to be told to fold; nullopt where it has a function of its own, or where
// there is none.
std::optional<std::string> fold_helper(kernel::ReduceOp reduce, DType dtype);
// Is the result the same in whatever order a whole tile is folded? One fold of all its dimensions is up to 2.5 times as
// fast as one after another (a copy of 1 GB on an H100, 8 warps).
bool may_fold_at_once(kernel::ReduceOp reduce);
// By that function; empty where there is none.
std::string own_fold_text(const Text& tile, kernel::ReduceOp reduce, std::string_view axis);

// By tl.reduce or tl.associative_scan. The larger of two bfloat16 is a float32 in Triton, which these refuse.
std::string combine_text(const std::string& function, const Text& tile, DType dtype, std::string_view axis,
                         const std::string& helper, const std::string& options);

}  // namespace kw::triton
