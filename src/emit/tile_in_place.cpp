#include "emit/tile_in_place.hpp"

#include <algorithm>

namespace kw {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::kNoValue;

bool has_loops_or_branches(const tile::Program& program) {
  return std::any_of(program.body.begin(), program.body.end(),
                     [](const Instruction& one) { return one.kind == Kind::kFor || one.kind == Kind::kIf; });
}

const Instruction* only_store(const tile::Program& program, int buffer) {
  const Instruction* only = nullptr;
  for (const Instruction& one : program.body) {
    if (one.kind != Kind::kStore || one.access.buffer != buffer) continue;
    if (only) return nullptr;
    only = &one;
  }
  return only;
}

bool is_affine(const tile::Access& access) {
  return std::all_of(access.coordinates.begin(), access.coordinates.end(),
                     [](const tile::Coordinate& coordinate) { return coordinate.value == kNoValue; });
}

bool is_same_place(const tile::Program& program, const tile::Access& left, const tile::Access& right) {
  return is_affine(left) && is_affine(right) && left.mask == right.mask &&
         tile::offset_of(program, left) == tile::offset_of(program, right);
}

// Blocks along which the place stays the same would all store to it, and the later read what the earlier wrote.
bool is_stored_once(const tile::Program& program, const Instruction& store) {
  const tile::Index place = tile::offset_of(program, store.access);
  const auto moves = [&](tile::Symbol symbol) { return kernel::uses(place, symbol); };
  const auto& lanes = program.values[store.operands[0]].type.lanes;
  return !store.combines && is_affine(store.access) && std::all_of(lanes.begin(), lanes.end(), moves) &&
         std::all_of(program.grid.begin(), program.grid.end(), [&](tile::Symbol symbol) {
           return moves(symbol) || program.symbols[symbol].count == tile::Index(1);
         });
}

}  // namespace

bool reads_what_it_writes(const tile::Program& program, int read, int written) {
  const Instruction* store = only_store(program, written);
  if (has_loops_or_branches(program) || !store || !is_stored_once(program, *store)) return false;
  return std::all_of(program.body.begin(), program.body.end(), [&](const Instruction& one) {
    if (one.kind == Kind::kStore) return one.access.buffer != read;
    if (one.kind != Kind::kLoad) return true;
    return one.access.buffer != written &&
           (one.access.buffer != read || (&one < store && is_same_place(program, one.access, store->access)));
  });
}

bool is_elementwise(const tile::Program& program, int read, int written) {
  return reads_what_it_writes(program, read, written) &&
         std::all_of(program.body.begin(), program.body.end(), [&](const Instruction& one) {
           switch (one.kind) {
             case Kind::kConstant:
             case Kind::kIndex:
             case Kind::kOp:
             case Kind::kLoad: return true;
             case Kind::kStore: return one.access.buffer == written;
             default: return false;
           }
         });
}

ReadFirst reads_first(const tile::Program& program, int read, int written) {
  ReadFirst result{true, false};
  std::vector<bool> depends(program.values.size());
  bool stored = false;
  for (const Instruction& one : program.body) {
    bool any = one.kind == Kind::kLoad && one.access.buffer == read;
    if (any && stored) result.holds = false;
    for (tile::Value operand : one.operands) any = any || depends[operand];
    for (const tile::Coordinate& coordinate : one.access.coordinates)
      any = any || (coordinate.value != kNoValue && depends[coordinate.value]);
    any = any || (one.access.mask != kNoValue && depends[one.access.mask]);
    for (tile::Value value : one.results) depends[value] = any;
    if (any && (one.kind == Kind::kFold || one.kind == Kind::kScan || one.kind == Kind::kDot)) result.holds = false;
    if (one.kind != Kind::kStore) continue;
    stored = stored || one.access.buffer == written;
    result.others = result.others || (any && one.access.buffer != written);
  }
  result.holds = result.holds && stored && !has_loops_or_branches(program);
  return result;
}

}  // namespace kw
