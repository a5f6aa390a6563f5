// Which keys a query attends to: by a mask that PyTorch's operator is given, or by the condition that scores are masked
// with before a softmax.
#pragma once

#include "plan/group_lowering.hpp"

namespace kw::plan {

// Of the scores' kernel: a key counts where the condition holds, or where it does not.
struct MaskedScores {
  ExprId condition = kNoExpr;
  bool holds = true;
};
// Of scores whose last operation is such a mask, whose condition does not depend on them. nullopt for all others.
std::optional<MaskedScores> masked_scores(const Attention& attention);

// Do places alone decide it, as in causal attention? Then lowering knows where a block's keys end.
bool is_masked_by_places(const Attention& attention);

// How many different conditions a group's mask has; 0 where there is no such mask.
int64_t conditions_of_mask(const LoweredGroup& group);

}  // namespace kw::plan
