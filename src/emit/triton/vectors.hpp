// Elements side by side that one instruction can read or write: loads and stores whose index steps by the length of a
// vector from lane to lane.
#pragma once

#include <vector>

#include "emit/kernel_ir.hpp"
#include "emit/triton/tile_dimensions.hpp"

namespace kw::triton {

// Element `at` of lane i is at index + at, and valid where its guards hold, those of `moving` moved by `at` like the
// index.
struct Vector {
  kernel_ir::Access first;    // of element 0; its index is a multiple of the length for a load
  std::vector<bool> moving;   // per guard of `first`
  std::vector<int> elements;  // load expressions (−1: not needed) or positions in kernel.stores
};

struct Vectors {
  std::vector<Vector> loads, stores;
  std::vector<int> of_expr, of_store;  // which vector each belongs to; −1: none
};

// Only in kernels without loops. Loads go in fours, aligned; stores in twos or fours, as wide as their lanes lie apart.
Vectors find_vectors(const kernel_ir::Kernel& kernel, const TileDimensions& dimensions);

}  // namespace kw::triton
