// Operands of products that are read where they lie in memory, instead of being copied into a tile before.
#pragma once

#include <vector>

#include "tile/program.hpp"

namespace kw::lower {

// [value] Is it a load of single-precision inputs that one product of tiles alone reads, in the same body, the one
// whose elements are spread over columns (docs/loops-of-a-cpu.md)? It has a row and a term of the sum for each element,
// both at fixed distances, and no mask.
std::vector<bool> find_memory_operands(const tile::Program& program);

}  // namespace kw::lower
