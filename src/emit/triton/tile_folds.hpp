// Folds of tiles along one of their dimensions, as Triton text.
#pragma once

#include <optional>
#include <string>

#include "emit/triton/expressions.hpp"

namespace kw::triton {

// The helper (helpers.hpp) by which Triton has to be told to fold; nullopt where it has a function of its own, or where
// there is none.
std::optional<std::string> fold_helper(kernel::ReduceOp reduce, DType dtype);
// By that function; empty where there is none.
std::string own_fold_text(const Text& tile, kernel::ReduceOp reduce, size_t axis);

// By tl.reduce or tl.associative_scan. The larger of two bfloat16 is a float32 in Triton, which these refuse.
std::string combine_text(const std::string& function, const Text& tile, DType dtype, size_t axis,
                         const std::string& helper, const std::string& options);

}  // namespace kw::triton
