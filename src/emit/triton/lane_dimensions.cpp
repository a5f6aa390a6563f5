#include "emit/triton/lane_dimensions.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/text.hpp"

namespace kw::triton {

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

LaneDimensions lane_dimensions(const tile::Program& program) {
  LaneDimensions result{std::vector<int>(program.symbols.size(), -1), 0, std::vector<bool>(program.symbols.size())};
  const std::vector<std::vector<Symbol>> tiles = tiles_of(program);
  const auto meet = [&](Symbol left, Symbol right) {
    return std::any_of(tiles.begin(), tiles.end(), [&](const std::vector<Symbol>& lanes) {
      return tile::has_lane(lanes, left) && tile::has_lane(lanes, right);
    });
  };
  const bool shares_rows = !tile::shared_rows(program).empty();
  std::vector<bool> folded(program.symbols.size()), shared(program.symbols.size());
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind == tile::Kind::kFold)
      for (Symbol lane : one.lanes) folded[lane] = true;
    if (one.kind == tile::Kind::kStack) result.stacked[one.to] = true;
    if (one.kind == tile::Kind::kUnstack) result.stacked[one.from] = true;
  });
  for (size_t symbol = 0; symbol < program.symbols.size(); ++symbol) {
    const auto lane = static_cast<Symbol>(symbol);
    if (program.symbols[symbol].kind != tile::SymbolKind::kLane || result.stacked[symbol]) continue;
    for (Symbol other = lane; folded[symbol] && other-- > 0;) {
      const bool may_share = !folded[other] || shares_rows;
      if (result.of_lane[other] < 0 || !may_share || shared[other] || meet(lane, other)) continue;
      result.of_lane[symbol] = result.of_lane[other];
      shared[other] = true;
      break;
    }
    if (result.of_lane[symbol] < 0) result.of_lane[symbol] = result.count++;
  }
  return result;
}

std::string LaneDimensions::shape(const tile::Program& program, const std::vector<Symbol>& lanes) const {
  std::vector<std::string> sizes(static_cast<size_t>(count), "1");
  for (Symbol lane : lanes) {
    const std::string width = std::to_string(tile::width_of(program, lane));
    if (stacked[lane]) sizes.push_back(width);
    else sizes[static_cast<size_t>(of_lane[lane])] = width;
  }
  return "(" + join(sizes, ", ") + (sizes.size() == 1 ? ",)" : ")");
}

bool LaneDimensions::is_stacked(const std::vector<Symbol>& lanes) const {
  return std::any_of(lanes.begin(), lanes.end(), [&](Symbol lane) { return stacked[lane]; });
}

std::string LaneDimensions::spread(const std::vector<Symbol>& own, const std::vector<Symbol>& lanes) const {
  if (own.empty() || !is_stacked(lanes) || is_stacked(own)) return "";
  std::vector<std::string> marks(static_cast<size_t>(count), ":");
  marks.emplace_back("None");
  return "[" + join(marks, ", ") + "]";
}

std::string LaneDimensions::brackets(Symbol lane) const {
  if (count + stacked[lane] == 1) return "";
  std::vector<std::string> marks(static_cast<size_t>(count + stacked[lane]), "None");
  marks[static_cast<size_t>(stacked[lane] ? count : of_lane[lane])] = ":";
  return "[" + join(marks, ", ") + "]";
}

}  // namespace kw::triton
