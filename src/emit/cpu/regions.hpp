// A pointwise kernel whose conditions ask where an element lies (cat, stack, slices, rolls, padding), cut at the places
// where the answers change: within a region none is asked, what is looked up at a known distance is a plain load, and
// axes that lie one behind the other in memory become one.
#pragma once

#include <string>
#include <vector>

#include "emit/kernel_ir.hpp"

namespace kw::cpu {

struct Region {
  kernel_ir::Kernel kernel;  // axes, expressions and stores of the part; the buffers of the whole
  std::string place;         // "row 511 to 543"; empty where there is one region
};

// In the order of memory; the kernel itself where nothing is gained.
std::vector<Region> regions_of(const kernel_ir::Kernel& kernel);

}  // namespace kw::cpu
