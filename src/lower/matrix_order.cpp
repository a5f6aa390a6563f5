#include "lower/matrix_order.hpp"

#include <utility>

namespace kw::lower {

void put_left_matrices_first(tile::Program& program) {
  tile::for_each_mutable(program.body, [&](tile::Instruction& one) {
    if (one.kind != tile::Kind::kDot) return;
    const auto lanes_of = [&](size_t operand) -> const std::vector<tile::Symbol>& {
      return program.values[one.operands[operand]].type.lanes;
    };
    if (lanes_of(0).empty()) return;
    const tile::Symbol column = lanes_of(0).back();
    if (tile::has_lane(lanes_of(1), column) && !tile::has_lane(lanes_of(2), column))
      std::swap(one.operands[1], one.operands[2]);
  });
}

}  // namespace kw::lower
