// Folds along loops whose iterations are done side by side, or by several threads.
#pragma once

#include "lower/loop_plan.hpp"
#include "tile/program.hpp"

namespace kw::lower {

// Marks the folds into variables whose points are met side by side: each SIMD lane, or thread, folds a part. Parts of
// an extreme are compared, as OpenMP combines them; a comparison passes over NaN, and so a flag says whether one was
// met. An array of extremes has no flags: threads do not share a loop that folds into one.
void find_parts(const tile::Program& program, std::vector<LoopStep>& body);

// Are points of the fold, which begins before the loop, met side by side?
bool runs_apart(const LoopStep& loop, const tile::Instruction& fold);
// May the fold come to NaN, which comparisons pass over?
bool may_lose_nan(const tile::Program& program, const tile::Instruction& fold);

}  // namespace kw::lower
