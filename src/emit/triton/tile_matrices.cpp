#include "emit/triton/tile_matrices.hpp"

namespace kw::triton {

using tile::Symbol;
using Lanes = std::vector<Symbol>;

std::optional<Matrices> matrices_of(const tile::Program& program, const tile::Instruction& dot, std::string& why_not) {
  const Lanes& kept = program.values[dot.operands[0]].type.lanes;
  const auto lanes_of = [&](tile::Value value) -> const Lanes& { return program.values[value].type.lanes; };
  Matrices matrices{dot.operands[1], dot.operands[2], {}, {}};
  Lanes batch, inner, rows, columns;
  for (Symbol lane : lanes_of(matrices.left)) {
    if (tile::has_lane(lanes_of(matrices.right), lane)) (tile::has_lane(kept, lane) ? batch : inner).push_back(lane);
    else rows.push_back(lane);
  }
  for (Symbol lane : lanes_of(matrices.right))
    if (!tile::has_lane(lanes_of(matrices.left), lane)) columns.push_back(lane);
  if (inner.size() != 1 || rows.size() != 1 || columns.size() != 1) {
    why_not = "a dot that is not of two matrices";
    return std::nullopt;
  }
  Lanes result = batch;
  matrices.left_lanes = matrices.right_lanes = batch;
  result.insert(result.end(), {rows[0], columns[0]});
  matrices.left_lanes.insert(matrices.left_lanes.end(), {rows[0], inner[0]});
  matrices.right_lanes.insert(matrices.right_lanes.end(), {inner[0], columns[0]});
  if (result == kept) return matrices;
  why_not = "a batched dot whose batch does not come first";
  return std::nullopt;
}

}  // namespace kw::triton
