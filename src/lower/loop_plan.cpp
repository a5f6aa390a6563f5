#include "lower/loop_plan.hpp"

#include "lower/first_places.hpp"
#include "lower/lane_order.hpp"
#include "lower/loop_marks.hpp"
#include "lower/loop_tree.hpp"
#include "lower/packed.hpp"
#include "lower/tile_places.hpp"

namespace kw::lower {
namespace {

bool uses_grid(const tile::Program& program, const tile::Index& index) {
  std::vector<bool> used;
  collect_symbols(index, used);
  for (size_t symbol = 0; symbol < used.size(); ++symbol)
    if (used[symbol] && program.symbols[symbol].kind == tile::SymbolKind::kGrid) return true;
  return false;
}

// Do loops end where a block's position says, or do only some blocks do all the work?
bool is_uneven(const tile::Program& program) {
  bool found = false;
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    if (one.kind == tile::Kind::kFor)
      found = found || uses_grid(program, one.begin) || uses_grid(program, one.end) || one.until != tile::kNoValue;
    if (one.kind == tile::Kind::kIf) found = true;
  });
  return found;
}

void set_ends(const LaneEnds& ends, std::vector<tile::Symbol> loops, std::vector<LoopStep>& steps) {
  for (LoopStep& step : steps) {
    std::vector<tile::Symbol> inner = loops;
    if (step.instruction && step.instruction->kind == tile::Kind::kFor) inner.push_back(step.instruction->symbol);
    set_ends(ends, inner, step.body);
    set_ends(ends, inner, step.otherwise_body);
    if (step.instruction) continue;
    for (size_t i = loops.size() + 1; i-- > 0 && !step.ends_early;)
      if (const auto found = ends.find({step.lane, i == 0 ? -1 : loops[i - 1]}); found != ends.end()) {
        step.end = found->second.end;
        step.ends_early = true;
        step.whole_vectors = found->second.whole_vectors;
      }
  }
}

}  // namespace

int64_t held_bytes(DType dtype) { return is_narrow_float(dtype) ? size_of(DType::f32) : size_of(dtype); }

LoopPlan plan_loops(const tile::Program& program, const LaneEnds& ends) {
  const std::vector<int> ranks = rank_lanes(program);
  LoopPlan plan = place_tiles(program, build_loops(program, ends, ranks), ranks);
  plan.is_uneven = is_uneven(program);
  mark_loops(program, plan.body);
  pack(program, plan.places);
  set_ends(ends, {}, plan.body);
  end_after_first_places(program, plan);
  return plan;
}

}  // namespace kw::lower
