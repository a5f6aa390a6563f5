// Which values of a tile program are far enough from zero for the hardware's inverse root.
#pragma once

#include <vector>

#include "tile/program.hpp"

namespace kw::triton {

// [value] Is it a sum with a constant that is no denormal? The hardware's inverse root takes denormals for zero, which
// the epsilon of a normalisation rules out.
std::vector<bool> sums_with_epsilon(const tile::Program& program);

}  // namespace kw::triton
