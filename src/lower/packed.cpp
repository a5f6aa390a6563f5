#include "lower/packed.hpp"

#include <algorithm>

#include "lower/loop_tree.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::ScalarOp;
using tile::Value;

class Packer {
 public:
  Packer(const tile::Program& program, std::vector<TilePlace>& places)
      : program_(program), places_(places), packed_(program.values.size()) {}

  void run() {
    tile::for_each(program_.body, [&](const Instruction& one) {
      for (Value value : one.results) definers_[value] = &one;
      if (sorts(one)) packed_[one.results[0]] = sorts_bits(one);
      else if (one.results.size() == 1) packed_[one.results[0]] = makes_packed(one);
    });
    bool changed = true;
    while (changed) {
      changed = false;
      tile::for_each(program_.body, [&](const Instruction& one) { changed = unpack(one) || changed; });
    }
    for (size_t value = 0; value < packed_.size(); ++value) places_[value].packed = packed_[value];
  }

 private:
  static bool sorts(const Instruction& one) { return one.kind == Kind::kScan && kernel::is_sort(one.reduce); }

  // Rows that are sorted from where they lie (walks.hpp).
  bool sorts_bits(const Instruction& sort) const {
    const TilePlace& place = places_[sort.operands[0]];
    return is_narrow_float(program_.values[sort.results[0]].type.dtype) && place.lanes.empty() &&
           definers_[sort.operands[0]]->kind == Kind::kLoad;
  }

  bool makes_packed(const Instruction& one) const {
    const Value value = one.results[0];
    const TilePlace& place = places_[value];
    const bool alone = place.home == Home::kWritten || (place.home == Home::kVariable && place.storage == value);
    if (!is_narrow_float(program_.values[value].type.dtype) || !alone || !place.lanes.empty()) return false;
    switch (one.kind) {
      case Kind::kLoad: return true;
      case Kind::kConstant: return one.number == 0.0;
      case Kind::kOp: return one.op == ScalarOp::kSelect || one.op == ScalarOp::kCast;
      default: return false;
    }
  }

  bool is_choice(const Instruction& one) const { return one.kind == Kind::kOp && one.op == ScalarOp::kSelect; }

  // Whether the instruction keeps one of its values from staying packed.
  bool unpack(const Instruction& one) {
    bool changed = false;
    const auto widen = [&](Value value) {
      changed = changed || packed_[value];
      packed_[value] = false;
    };
    const bool takes = (one.kind == Kind::kStore && !one.combines) || sorts(one) ||
                       (one.kind == Kind::kOp && one.op == ScalarOp::kCast);
    const bool chooses = is_choice(one) && packed_[one.results[0]];
    for_each_use(one, [&](Value value, Use) {
      if (!takes && !chooses) widen(value);
    });
    if (chooses && (!packed_[one.operands[1]] || !packed_[one.operands[2]])) {
      widen(one.results[0]);
      widen(one.operands[1]);
      widen(one.operands[2]);
    }
    return changed;
  }

  const tile::Program& program_;
  std::vector<TilePlace>& places_;
  std::vector<bool> packed_;  // [value]
  std::vector<const Instruction*> definers_ = std::vector<const Instruction*>(program_.values.size());
};

}  // namespace

void pack(const tile::Program& program, std::vector<TilePlace>& places) { Packer(program, places).run(); }

}  // namespace kw::lower
