#include "lower/loop_ends.hpp"

namespace kw::lower {
namespace {

// `variables`: of the Fors around, the outermost first.
void end_loops(const tile::LaneEnds& ends, const std::vector<tile::Symbol>& variables, std::vector<LoopStep>& steps) {
  for (LoopStep& step : steps) {
    std::vector<tile::Symbol> inner = variables;
    if (step.instruction && step.instruction->kind == tile::Kind::kFor) inner.push_back(step.instruction->symbol);
    end_loops(ends, inner, step.body);
    end_loops(ends, inner, step.otherwise_body);
    if (step.instruction) continue;
    if (const tile::LaneEnd* found = tile::end_of(ends, step.lane, variables)) {
      step.end = found->end;
      step.ends_early = true;
      step.whole_vectors = found->whole_vectors;
    }
  }
}

}  // namespace

void end_loops(const tile::LaneEnds& ends, std::vector<LoopStep>& steps) {
  if (!ends.empty()) end_loops(ends, {}, steps);
}

}  // namespace kw::lower
