// What an operation gives where every operand is one number that is known: of lanes that stand for nothing, say, which
// hold what a fold starts from.
#pragma once

#include <optional>
#include <span>

#include "ir/types.hpp"
#include "kernel/operations.hpp"

namespace kw::kernel {

// nullopt where it is not known; only results that every rounding gives are.
std::optional<double> known_result(ScalarOp op, DType result_type, std::span<const std::optional<double>> operands);

}  // namespace kw::kernel
