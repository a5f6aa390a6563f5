// How exactly the operations of a tile program have to be computed, and what is known of their operands.
#pragma once

#include <optional>

#include "emit/triton/expressions.hpp"
#include "emit/triton/tile_roots.hpp"
#include "emit/triton/tile_values.hpp"

namespace kw::triton {

class TileOperations {
 public:
  TileOperations(const tile::Program& program, const TileValues& values)
      : program_(program), values_(values), roots_(roots_of(program)) {}

  Operation of(const tile::Instruction& one) const;
  // Of a quotient by a number, what is multiplied with instead; nullopt of others.
  std::optional<double> reciprocal_of_divisor(const tile::Instruction& one) const;

 private:
  DType dtype(tile::Value value) const { return program_.values[value].type.dtype; }
  // Is it x − max(x), along the same lanes; or −|x − m|, where m is the largest so far?
  bool is_below_largest(tile::Value value) const;
  // Is it added to 1, and used for nothing else?
  bool is_beside_one(tile::Value value) const;
  // Is it what a loop counts, or one where that is 0? A mean's weights need not be rounded better than its sums.
  bool is_count_so_far(tile::Value value) const;
  // Is it a sum of what a power of two scales?
  bool is_sum_of_shares(tile::Value value) const;

  const tile::Program& program_;
  const TileValues& values_;
  const TileRoots roots_;
};

}  // namespace kw::triton
