#include "lower/lane_ends.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "kernel/scalar_values.hpp"
#include "lower/dead_code.hpp"
#include "lower/walks.hpp"

namespace kw::lower {
namespace {

using kernel::ScalarOp;
using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::LaneEnds;
using tile::kNoValue;
using tile::Symbol;
using tile::Value;
using Lanes = std::vector<Symbol>;
using Loops = std::vector<Symbol>;  // variables of the loops around, the outermost first

class LaneEnder {
 public:
  explicit LaneEnder(tile::Program& program)
      : program_(program), definers_(program.values.size()), homes_(program.values.size()) {}

  LaneEnds run() {
    find_guards(program_.body, {}, false);
    check(program_.body, {});
    std::erase_if(ends_, [&](const auto& one) { return bad_.count(one.first.first) != 0; });
    // Loops that go on to whole vectors need their masks.
    const auto goes_on = [&](Symbol lane) {
      const auto end = ends_.find({lane, -1});
      return end != ends_.end() && end->second.whole_vectors;
    };
    std::erase_if(guards_, [&](const auto& one) { return bad_.count(one.second) != 0 || goes_on(one.second); });
    for (const auto& [value, lane] : guards_) true_.insert(value);
    rewrite(program_.body);
    return std::move(ends_);
  }

 private:
  const Lanes& lanes(Value value) const { return program_.values[value].type.lanes; }

  // --- Masks that say where a lane ends ---

  void find_guards(const std::vector<Instruction>& body, const Loops& loops, bool conditional) {
    for (const Instruction& one : body) {
      for (Value value : one.results) definers_[value] = &one;
      if (!conditional) note_guard(one, loops);
      Loops inner = loops;
      if (one.kind == Kind::kFor) inner.push_back(one.symbol);
      find_guards(one.body, inner, conditional || one.kind == Kind::kIf);
      find_guards(one.otherwise_body, inner, true);
    }
  }

  void note_guard(const Instruction& one, const Loops& loops) {
    if (one.kind != Kind::kOp || one.op != ScalarOp::kLess || lanes(one.results[0]).size() != 1) return;
    const Instruction* at = definers_[one.operands[0]];
    const std::optional<Index> bound = scalar_of(one.operands[1]);
    if (!at || at->kind != Kind::kIndex || !bound) return;
    const Symbol lane = lanes(one.results[0])[0];
    const auto parts = kernel::linear_in(at->index, lane);
    if (!parts || !(parts->coefficient == Index(1)) || !tile::lanes_of(program_, parts->rest).empty()) return;
    const Index end = *bound - parts->rest;
    const bool whole_vectors = program_.grid.empty() && program_.symbols[lane].simd && kernel::as_constant(end);
    const Symbol loop = loops.empty() || whole_vectors ? -1 : loops.back();
    const auto [found, is_new] = ends_.try_emplace({lane, loop}, tile::LaneEnd{end, whole_vectors});
    if (!is_new && !(found->second.end == end)) bad_.insert(lane);
    guards_[one.results[0]] = lane;
  }

  std::optional<Index> scalar_of(Value value) const {
    const Instruction* one = definers_[value];
    if (!one || !lanes(value).empty()) return std::nullopt;
    if (one->kind == Kind::kConstant) return Index(one->integer);
    if (one->kind == Kind::kIndex) return one->index;
    return std::nullopt;
  }

  const Index* end_of(Symbol lane, const Loops& loops) const {
    const tile::LaneEnd* found = tile::end_of(ends_, lane, loops);
    return found ? &found->end : nullptr;
  }

  // --- What sees points behind the end ---

  void check(const std::vector<Instruction>& body, const Loops& loops) {
    for (const Instruction& one : body) {
      for (Value value : one.operands) check_use(value, loops);
      check_use(one.access.mask, loops);
      for (const tile::Coordinate& coordinate : one.access.coordinates) check_use(coordinate.value, loops);
      for (Value value : one.results) homes_[value] = loops;
      check_kind(one, loops);
      Loops inner = loops;
      if (one.kind == Kind::kFor) inner.push_back(one.symbol);
      for (Value value : one.arguments) homes_[value] = inner;
      check(one.body, inner);
      check(one.otherwise_body, inner);
      for (Value value : one.yields) check_use(value, inner);
      for (Value value : one.otherwise_yields) check_use(value, inner);
      // What a loop carries is seen inside and outside.
      for (Value value : one.arguments) check_use(value, loops);
    }
  }

  void check_use(Value value, const Loops& loops) {
    if (value == kNoValue || (definers_[value] && definers_[value]->kind == Kind::kConstant)) return;
    for (Symbol lane : lanes(value)) {
      const Index *made = end_of(lane, homes_[value]), *used = end_of(lane, loops);
      if (made != used && !(made && used && *made == *used)) bad_.insert(lane);
    }
  }

  void check_kind(const Instruction& one, const Loops& loops) {
    const auto spoil = [&](const Lanes& all) { bad_.insert(all.begin(), all.end()); };
    switch (one.kind) {
      case Kind::kDot:
        for (Value value : one.operands) spoil(lanes(value));
        return;
      case Kind::kCopy: return spoil(one.lanes);
      case Kind::kScan:
        if (!sees_only_its_end(one, loops)) spoil({one.from});
        return;
      case Kind::kRelabel: return spoil({one.from, one.to});
      case Kind::kSplit: return spoil({one.from, one.lanes[0], one.lanes[1]});
      case Kind::kFold:
        for (Symbol lane : one.lanes)
          if (end_of(lane, loops) && !changes_nothing(one, lane)) bad_.insert(lane);
        return;
      case Kind::kStore: return check_store(one, loops);
      default: return;
    }
  }

  void check_store(const Instruction& one, const Loops& loops) {
    Lanes shown = lanes(one.operands[0]);
    for (const tile::Coordinate& coordinate : one.access.coordinates)
      for (Symbol lane : tile::lanes_of(program_, coordinate.index)) shown.push_back(lane);
    for (Symbol lane : tile::lanes_of(program_, one.access))
      if (!tile::has_lane(shown, lane)) bad_.insert(lane);
    for (Symbol lane : shown)
      if (end_of(lane, loops) && !implies(one.access.mask, lane)) bad_.insert(lane);
  }

  bool implies(Value mask, Symbol lane) const {
    if (mask == kNoValue) return false;
    if (const auto found = guards_.find(mask); found != guards_.end()) return found->second == lane;
    const Instruction* one = definers_[mask];
    return one && one->kind == Kind::kOp && one->op == ScalarOp::kLogicalAnd &&
           (implies(one->operands[0], lane) || implies(one->operands[1], lane));
  }

  // A walk forwards meets what is behind the end last; others have to meet nothing there.
  bool sees_only_its_end(const Instruction& scan, const Loops& loops) const {
    if (!is_simple_scan(scan)) return false;
    const bool sees_all = scan.reversed || scan.way == tile::ScanWay::kAfter;
    return !sees_all || !end_of(scan.from, loops) || changes_nothing(scan, scan.from);
  }

  // Does the fold take what changes nothing behind the lane's end?
  bool changes_nothing(const Instruction& fold, Symbol lane) const {
    const Instruction* one = definers_[fold.operands[0]];
    if (!one || !kernel::identity_of(fold.reduce)) return false;
    const DType dtype = program_.values[fold.operands[0]].type.dtype;
    const kernel::Number neutral = kernel::identity(fold.reduce, dtype);
    if (one->kind == Kind::kLoad)
      return implies(one->access.mask, lane) && kernel::is_real(dtype) && one->access.otherwise == neutral.real;
    if (one->kind != Kind::kOp || one->op != ScalarOp::kSelect || !implies(one->operands[0], lane)) return false;
    const Instruction* other = definers_[one->operands[2]];
    return other && other->kind == Kind::kConstant &&
           (kernel::is_real(dtype) ? other->number == neutral.real : other->integer == neutral.whole);
  }

  // --- Without the masks ---

  Value now(Value value) const {
    const auto found = replaced_.find(value);
    return found == replaced_.end() ? value : found->second;
  }

  void rewrite(std::vector<Instruction>& body) {
    for (Instruction& one : body) {
      if (one.kind == Kind::kOp && drop(one)) continue;
      for (Value& value : one.operands) value = now(value);
      for (tile::Coordinate& coordinate : one.access.coordinates)
        if (coordinate.value != kNoValue) coordinate.value = now(coordinate.value);
      if (one.access.mask != kNoValue) one.access.mask = true_.count(one.access.mask) ? kNoValue : now(one.access.mask);
      rewrite(one.body);
      rewrite(one.otherwise_body);
      for (Value& value : one.yields) value = now(value);
      for (Value& value : one.otherwise_yields) value = now(value);
    }
  }

  // Is the operation one of its operands, as a mask holds?
  bool drop(const Instruction& one) {
    const Value result = one.results[0];
    if (one.op == ScalarOp::kSelect && true_.count(one.operands[0]) && lanes(one.operands[1]) == lanes(result)) {
      replaced_[result] = now(one.operands[1]);
      return true;
    }
    if (one.op != ScalarOp::kLogicalAnd) return false;
    const bool left = true_.count(one.operands[0]) != 0, right = true_.count(one.operands[1]) != 0;
    if (left && right) true_.insert(result);
    else if (left || right) replaced_[result] = now(one.operands[left ? 1 : 0]);
    return left || right;
  }

  tile::Program& program_;
  std::vector<const Instruction*> definers_;  // [value]
  std::vector<Loops> homes_;                  // [value] the loops around where it is made
  LaneEnds ends_;
  std::map<Value, Symbol> guards_;  // masks that hold up to their lane's end
  std::set<Symbol> bad_;            // lanes of which more is seen
  std::set<Value> true_;
  std::map<Value, Value> replaced_;
};

}  // namespace

tile::LaneEnds end_lanes(tile::Program& program) {
  tile::LaneEnds ends = LaneEnder(program).run();
  if (!ends.empty()) remove_dead_code(program);
  return ends;
}

}  // namespace kw::lower
