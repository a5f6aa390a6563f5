// A dot's operands as two matrices, as Triton multiplies them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tile/program.hpp"

namespace kw::triton {

struct Matrices {
  tile::Value left, right;
  // [batch, row, inner] and [batch, inner, column]: the result's lanes are batch, row, column.
  std::vector<tile::Symbol> left_lanes, right_lanes;
};

// The operands, of which the first has the rows; `why_not` says why they are no matrices where the dot is not one
// product of them for each point of a batch.
std::optional<Matrices> matrices_of(const tile::Program& program, const tile::Instruction& dot, std::string& why_not);

}  // namespace kw::triton
