#include "lower/lane_dimensions.hpp"

#include <algorithm>
#include <vector>

namespace kw::lower {

using tile::Instruction;
using tile::Symbol;

namespace {

// Sets of lanes that one tile has.
std::vector<std::vector<Symbol>> tiles_of(const tile::Program& program) {
  std::vector<std::vector<Symbol>> tiles;
  for (const tile::ValueInfo& value : program.values) tiles.push_back(value.type.lanes);
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind != tile::Kind::kStore) return;
    std::vector<Symbol> lanes = tile::lanes_of(program, one.access);
    const std::vector<Symbol>& stored = program.values[one.operands[0]].type.lanes;
    lanes.insert(lanes.end(), stored.begin(), stored.end());
    tiles.push_back(std::move(lanes));
  });
  return tiles;
}

}  // namespace

void give_dimensions(tile::Program& program) {
  if (!tile::maps_and_folds(program)) return;
  const std::vector<std::vector<Symbol>> tiles = tiles_of(program);
  const auto meet = [&](Symbol left, Symbol right) {
    return std::any_of(tiles.begin(), tiles.end(), [&](const std::vector<Symbol>& lanes) {
      return tile::has_lane(lanes, left) && tile::has_lane(lanes, right);
    });
  };
  const bool shares_rows = !tile::shared_rows(program).empty();
  std::vector<bool> folded(program.symbols.size()), stacked(program.symbols.size()), shared(program.symbols.size());
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind == tile::Kind::kFold)
      for (Symbol lane : one.lanes) folded[lane] = true;
    if (one.kind == tile::Kind::kStack) stacked[one.to] = true;
    if (one.kind == tile::Kind::kUnstack) stacked[one.from] = true;
  });
  program.rank = 0;
  for (size_t symbol = 0; symbol < program.symbols.size(); ++symbol) {
    const auto lane = static_cast<Symbol>(symbol);
    int& dimension = program.symbols[symbol].dimension;
    if (program.symbols[symbol].kind != tile::SymbolKind::kLane || stacked[symbol]) continue;
    for (Symbol other = lane; folded[symbol] && other-- > 0;) {
      const bool may_share = !folded[other] || shares_rows;
      if (program.symbols[other].dimension < 0 || !may_share || shared[other] || meet(lane, other)) continue;
      dimension = program.symbols[other].dimension;
      shared[other] = true;
      break;
    }
    if (dimension < 0) dimension = program.rank++;
  }
  for (size_t symbol = 0; symbol < program.symbols.size(); ++symbol)
    if (stacked[symbol]) program.symbols[symbol].dimension = program.rank;
}

}  // namespace kw::lower
