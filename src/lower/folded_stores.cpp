#include "lower/folded_stores.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "lower/appender.hpp"

namespace kw::lower {

using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::TileType;

namespace {

std::vector<Symbol> lanes_of_one_place(const tile::Program& program, const Instruction& one) {
  if (one.kind != Kind::kStore || !one.combines || one.in_order) return {};
  const TileType& stored = program.values[one.operands[0]].type;
  if (is_narrow_float(stored.dtype) || size_of(stored.dtype) < 4) return {};
  const std::vector<Symbol> own = tile::lanes_of(program, one.access);
  std::vector<Symbol> lanes;
  std::copy_if(stored.lanes.begin(), stored.lanes.end(), std::back_inserter(lanes),
               [&](Symbol lane) { return !tile::has_lane(own, lane); });
  return lanes;
}

void fold_in(tile::Program& program, Appender& values, std::vector<Instruction>& body) {
  std::vector<Instruction> before = std::move(body);
  body.clear();
  for (Instruction& one : before) {
    fold_in(program, values, one.body);
    fold_in(program, values, one.otherwise_body);
    if (std::vector<Symbol> lanes = lanes_of_one_place(program, one); !lanes.empty()) {
      const tile::Value stored = one.operands[0];
      TileType type = program.values[stored].type;
      std::erase_if(type.lanes, [&](Symbol lane) { return tile::has_lane(lanes, lane); });
      Instruction fold;
      fold.kind = Kind::kFold;
      fold.reduce = one.reduce;
      fold.operands = {stored};
      fold.lanes = std::move(lanes);
      fold.results = {values.value(program.values[stored].name + "_folded", std::move(type))};
      one.operands[0] = fold.results[0];
      body.push_back(std::move(fold));
    }
    body.push_back(std::move(one));
  }
}

}  // namespace

void fold_before_combining(tile::Program& program) {
  Appender values(program);
  fold_in(program, values, program.body);
}

}  // namespace kw::lower
