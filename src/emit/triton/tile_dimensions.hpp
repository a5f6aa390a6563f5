// Which dimension of a kernel's tiles each axis is.
#pragma once

#include <vector>

#include "emit/kernel_ir.hpp"

namespace kw::triton {

// An axis with block > 1 is a dimension. A parallel and a reduce axis share one where no value varies along both: the
// few partial results that a program folds first then lie as the row does that it writes afterwards. With a dimension
// each, Triton would spread the threads over the partials and let them repeat each other's work on the row (a LayerNorm
// of 16 rows of 4 M elements took 29 ms instead of 0.2).
struct TileDimensions {
  int count = 0;
  std::vector<int> of_axis;  // −1: a scalar for each program

  bool has(int axis) const { return of_axis[axis] >= 0; }
};

// `axes`: axes_of_exprs(kernel).
TileDimensions find_tile_dimensions(const kernel_ir::Kernel& kernel, const std::vector<std::vector<bool>>& axes);

}  // namespace kw::triton
