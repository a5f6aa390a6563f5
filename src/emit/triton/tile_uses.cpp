#include "emit/triton/tile_uses.hpp"

namespace kw::triton {

using tile::Instruction;
using tile::Value;

TileUses::TileUses(const tile::Program& program)
    : uses_(program.values.size()), users_body_(program.values.size()), own_body_(program.values.size()) {
  visit(program.body);
}

bool TileUses::is_used_once(Value value) const { return uses_[value] == 1 && users_body_[value] == own_body_[value]; }

void TileUses::visit(const std::vector<Instruction>& body) {
  for (const Instruction& one : body) {
    for (Value result : one.results) own_body_[result] = &body;
    for (Value operand : one.operands) use(operand, body);
    for (const tile::Coordinate& coordinate : one.access.coordinates) use(coordinate.value, body);
    use(one.access.mask, body);
    use(one.until, body);
    for (Value value : one.yields) use(value, one.body);
    for (Value value : one.otherwise_yields) use(value, one.otherwise_body);
    visit(one.body);
    visit(one.otherwise_body);
  }
}

void TileUses::use(Value value, const std::vector<Instruction>& body) {
  if (value == tile::kNoValue) return;
  ++uses_[value];
  users_body_[value] = &body;
}

}  // namespace kw::triton
