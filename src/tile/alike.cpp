#include "tile/alike.hpp"

#include <algorithm>

namespace kw::tile {

Alike::Alike(const Program& program)
    : program_(program),
      makers_(program.values.size()),
      yields_(program.values.size(), kNoValue),
      arguments_(program.values.size(), kNoValue),
      initials_(program.values.size(), kNoValue) {
  const bool shares_rows = !shared_rows(program).empty();
  for_each(program.body, [&](const Instruction& one) {
    if (shares_rows && one.kind == Kind::kStore && program.buffers[one.access.buffer].role == BufferRole::kScratch)
      part_stores_.push_back(&one);
    if (one.kind != Kind::kFor && one.kind != Kind::kIf)
      for (Value result : one.results) makers_[result] = &one;
    for (size_t at = 0; at < one.arguments.size(); ++at)
      for (Value value : {one.arguments[at], one.results[at]}) {
        yields_[value] = one.yields[at];
        arguments_[value] = one.arguments[at];
        initials_[value] = one.operands[at];
      }
  });
}

// Each kind of part has places of its own, which differ from those of others by a number.
Value Alike::own_part(const Instruction& load) const {
  Value found = kNoValue;
  for (const Instruction* store : part_stores_) {
    if (load.kind != Kind::kLoad || store->access.buffer != load.access.buffer ||
        store->access.coordinates[0].index.constant != load.access.coordinates[0].index.constant)
      continue;
    if (found != kNoValue) return kNoValue;
    found = store->operands[0];
  }
  return found;
}

bool Alike::same(const Access& left, const Access& right) const {
  return left.buffer == right.buffer &&
         std::equal(left.coordinates.begin(), left.coordinates.end(), right.coordinates.begin(),
                    right.coordinates.end(), [&](const Coordinate& one, const Coordinate& other) {
                      return one.index == other.index && same(one.value, other.value);
                    });
}

bool Alike::same(Value left, Value right) const {
  if (left == right) return true;
  if (left == kNoValue || right == kNoValue) return false;
  const auto known = known_.find({left, right});
  if (known != known_.end()) return known->second;
  const bool found = compare(left, right);
  known_[{left, right}] = found;
  return found;
}

bool Alike::compare(Value left, Value right) const {
  if (!(program_.values[left].type == program_.values[right].type)) return false;
  const Instruction *one = makers_[left], *other = makers_[right];
  if (!one || !other || one->kind != other->kind) return false;
  switch (one->kind) {
    case Kind::kConstant: return one->number == other->number && one->integer == other->integer;
    case Kind::kIndex: return one->index == other->index;
    case Kind::kLoad:
      return same(one->access, other->access) && same(one->access.mask, other->access.mask) &&
             one->access.otherwise == other->access.otherwise;
    case Kind::kOp:
      return one->op == other->op && one->exactness == other->exactness &&
             std::equal(one->operands.begin(), one->operands.end(), other->operands.begin(), other->operands.end(),
                        [&](Value mine, Value its) { return same(mine, its); });
    default: return false;
  }
}

}  // namespace kw::tile
