#include "lower/fold_parts.hpp"

#include <algorithm>

#include "lower/loop_tree.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Symbol;

// The loop in which the fold stands.
const LoopStep* loop_of(const LoopStep& loop, const Instruction& fold) {
  for (const LoopStep& step : loop.body) {
    if (step.instruction == &fold) return &loop;
    if (!step.instruction)
      if (const LoopStep* found = loop_of(step, fold)) return found;
  }
  return nullptr;
}

class PartFinder {
 public:
  explicit PartFinder(const tile::Program& program) : program_(program) {}

  void visit(std::vector<LoopStep>& steps) {
    for (LoopStep& step : steps) {
      for (const BegunFold& begun : step.folds)
        if (!in_variable(*begun.fold) && may_lose_nan(program_, *begun.fold)) step.shared = 0;
      for (BegunFold& begun : step.folds) mark(begun, step);
      if (!step.instruction) open_.push_back(step.lane);
      visit(step.body);
      visit(step.otherwise_body);
      if (!step.instruction) open_.pop_back();
    }
  }

 private:
  void mark(BegunFold& begun, const LoopStep& loop) const {
    const Instruction& fold = *begun.fold;
    begun.in_parts = in_variable(fold) && !folds_along(fold) && runs_apart(loop, fold);
    begun.flags_nan = begun.in_parts && may_lose_nan(program_, fold);
  }

  bool in_variable(const Instruction& fold) const {
    const std::vector<Symbol>& left = program_.values[fold.results[0]].type.lanes;
    return std::all_of(left.begin(), left.end(),
                       [&](Symbol lane) { return std::find(open_.begin(), open_.end(), lane) != open_.end(); });
  }

  const tile::Program& program_;
  std::vector<Symbol> open_;  // lanes of the loops around
};

}  // namespace

void find_parts(const tile::Program& program, std::vector<LoopStep>& body) { PartFinder(program).visit(body); }

bool runs_apart(const LoopStep& loop, const Instruction& fold) {
  const LoopStep* own = loop_of(loop, fold);
  return loop.shared > 0 || (own && own->simd && tile::has_lane(fold.lanes, own->lane));
}

bool may_lose_nan(const tile::Program& program, const Instruction& fold) {
  const bool is_extreme = fold.reduce == tile::ReduceOp::kMax || fold.reduce == tile::ReduceOp::kMin;
  return is_extreme && is_floating(program.values[fold.results[0]].type.dtype);
}

}  // namespace kw::lower
