#include "lower/first_places.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "lower/walks.hpp"

namespace kw::lower {
namespace {

using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::ScalarOp;
using tile::Symbol;
using tile::Value;

class LoopEnder {
 public:
  LoopEnder(const tile::Program& program, const std::vector<TilePlace>& places)
      : program_(program), places_(places), definers_(program.values.size()) {
    tile::for_each(program.body, [&](const Instruction& one) {
      for (Value value : one.results) definers_[value] = &one;
      if (one.kind == Kind::kScan && kernel::is_sort(one.reduce) && one.integer > 0) sorted_.insert(one.from);
    });
  }

  void visit(std::vector<LoopStep>& steps) const {
    for (LoopStep& step : steps) {
      visit(step.body);
      visit(step.otherwise_body);
      if (step.instruction || step.ends_early || sorted_.count(step.lane) == 0) continue;
      if (!step.folds.empty()) continue;
      std::optional<int64_t> end = 0;
      find_end(step.body, step.lane, end);
      if (!end || *end == 0 || *end >= tile::width_of(program_, step.lane)) continue;
      step.end = Index(*end);
      step.ends_early = true;
      note_masks(step.body, step.lane, *end, step.holds);
    }
  }

 private:
  // The largest of the bounds of all that is stored; none where something else is seen outside of the loop.
  void find_end(const std::vector<LoopStep>& steps, Symbol lane, std::optional<int64_t>& end) const {
    for (const LoopStep& step : steps) {
      if (!step.folds.empty()) end.reset();
      find_end(step.body, lane, end);
      if (!end || !step.instruction) continue;
      const Instruction& one = *step.instruction;
      const bool is_array = std::any_of(one.results.begin(), one.results.end(),
                                        [&](Value value) { return tile::has_lane(places_[value].lanes, lane); });
      const bool walks = is_simple_scan(one) && !one.reversed && one.way == tile::ScanWay::kFree;
      const bool maps = one.kind == Kind::kConstant || one.kind == Kind::kIndex || one.kind == Kind::kOp ||
                        one.kind == Kind::kLoad || walks;
      const std::optional<int64_t> bound = one.kind == Kind::kStore ? bound_of(one.access.mask, lane) : std::nullopt;
      if (is_array || (!maps && !bound)) end.reset();
      else if (bound) end = std::max(*end, *bound);
    }
  }

  // Of a lane's place, as a mask has it: lane + … < …
  std::optional<int64_t> bound_of(Value mask, Symbol lane) const {
    const Instruction* one = mask == kNoValue ? nullptr : definers_[mask];
    if (!one || one->kind != Kind::kOp) return std::nullopt;
    if (one->op == ScalarOp::kLogicalAnd) {
      const auto left = bound_of(one->operands[0], lane), right = bound_of(one->operands[1], lane);
      return left && right ? std::min(left, right) : (left ? left : right);
    }
    if (one->op != ScalarOp::kLess) return std::nullopt;
    const Instruction *place = definers_[one->operands[0]], *bound = definers_[one->operands[1]];
    if (!place || !bound || place->kind != Kind::kIndex || bound->kind != Kind::kConstant) return std::nullopt;
    const auto parts = kernel::linear_in(place->index, lane);
    const auto rest = parts ? kernel::as_constant(parts->rest) : std::nullopt;
    if (!rest || !(parts->coefficient == Index(1))) return std::nullopt;
    return std::max<int64_t>(bound->integer - *rest, 0);
  }

  void note_masks(const std::vector<LoopStep>& steps, Symbol lane, int64_t end, std::vector<Value>& holds) const {
    for (const LoopStep& step : steps) {
      note_masks(step.body, lane, end, holds);
      if (!step.instruction || step.instruction->kind != Kind::kStore) continue;
      const Value mask = step.instruction->access.mask;
      if (definers_[mask]->op == ScalarOp::kLess && bound_of(mask, lane) == end) holds.push_back(mask);
    }
  }

  const tile::Program& program_;
  const std::vector<TilePlace>& places_;
  std::vector<const Instruction*> definers_;  // [value]
  std::set<Symbol> sorted_;
};

}  // namespace

void end_after_first_places(const tile::Program& program, LoopPlan& plan) {
  LoopEnder(program, plan.places).visit(plan.body);
}

}  // namespace kw::lower
