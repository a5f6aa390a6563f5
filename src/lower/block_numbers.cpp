#include "lower/block_numbers.hpp"

#include <algorithm>

#include "tile/block_places.hpp"

namespace kw::lower {
namespace {

constexpr size_t kMostDimensions = 3;   // of a launch
constexpr int64_t kMostBlocks = 65535;  // along the second and third dimension of a CUDA grid

// Beside folds and products remainders of one number say more to
// the compiler: depthwise convolutions take half the registers.
bool can_have_own_dimensions(const tile::Program& program) {
  if (program.consumers.count > 1 || program.tickets >= 0) return false;
  if (program.grid.size() == 1) return true;
  if (!tile::maps_and_folds(program) || program.grid.size() > kMostDimensions || program.order.grouped >= 0)
    return false;
  const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program);
  return std::all_of(program.grid.begin(), program.grid.end(), [&](tile::Symbol symbol) {
    return symbol == program.grid.back() || kernel::range_of(program.symbols[symbol].count, ranges).high <= kMostBlocks;
  });
}

}  // namespace

void number_blocks_of_gpu(tile::Program& program) {
  if (!program.grid.empty() && !can_have_own_dimensions(program)) tile::place_blocks(program, "program");
}

void number_blocks_of_cpu(tile::Program& program) {
  program.order = {};
  program.consumers = {};
  if (program.grid.size() > 1) tile::place_blocks(program, "block");
}

}  // namespace kw::lower
