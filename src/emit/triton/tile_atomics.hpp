// Folds of tiles into memory that other blocks fold into meanwhile, as Triton text.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "emit/triton/tile_addresses.hpp"

namespace kw::triton {

struct AtomicCall {
  std::string function;
  std::vector<std::string> arguments;
};

// Folds `tile`, of this shape, by sum, prod, max or min where the mask holds; empty: everywhere. Notes the helpers
// (helpers.hpp) that it takes.
AtomicCall atomic_call(const TileAddresses::Place& place, const std::string& tile, const std::string& mask,
                       const std::string& shape, kernel::ReduceOp reduce, DType dtype, std::set<std::string>& helpers);

// Does any of its stores fold by the helper `add`?
bool calls_add(const tile::Program& program);

}  // namespace kw::triton
