// Padded lanes: where a tile's block reaches beyond the extent of a reduce or scan axis, every value still exists and
// must not disturb a fold. This finds what loads should put there so that the fewest folds need a select.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emit/kernel_ir.hpp"

namespace kw::triton {

// Whether the last block reaches beyond the axis.
inline bool overhangs(const kernel_ir::Axis& axis) {
  return axis.extent % axis.block != 0 || (axis.extent == 0 && !axis.looped);
}

struct Padding {
  std::vector<bool> padded;  // [axis]: a reduce or scan axis of the tile that its block does not divide
  std::vector<std::optional<double>> load_other;  // [expr]: what the load puts into padded lanes; nothing where it does
                                                  // not matter
  std::vector<std::optional<double>> value;       // [expr]: what the expression is in padded lanes, where known

  bool any() const;
};

Padding find_padding(const kernel_ir::Kernel& kernel, const std::vector<std::vector<bool>>& axes);

// The value that a fold leaves unchanged, for the operand at `position` of the Reduce; max_sum_exp folds its maximum.
double identity_of(kernel_ir::ReduceOp reduce, DType dtype, size_t position = 0);

// The same, as Triton text.
std::string identity_text(kernel_ir::ReduceOp reduce, DType dtype, size_t position);

}  // namespace kw::triton
