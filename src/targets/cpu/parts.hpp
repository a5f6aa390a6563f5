// What a kernel's function does, one part after the other, and in which loops: what schedulers go by.
#pragma once

#include <vector>

#include "targets/cpu/loop_nest.hpp"
#include "targets/cpu/simplify.hpp"
#include "plan/group_kernel.hpp"

namespace kw::cpu {

struct Part {
  Simplified simplified;
  LoopNest nest;
};

// Of a pointwise kernel, its regions (regions.hpp).
std::vector<Part> parts_of(const plan::GroupKernel& kernel, const LoopHints& hints);

// Of each choice: the most that it may be (the least is 0, which leaves it to the loops' plan), and the
// values worth trying.
struct ChoiceLimits {
  int64_t LoopChoices::* choice;
  int64_t most;
  bool powers_of_two;
  std::vector<int64_t> tried;
};
const std::vector<ChoiceLimits>& choice_limits();

// The choices that make a difference to the kernel's loops.
std::vector<int64_t LoopChoices::*> choices_of(const plan::GroupKernel& kernel, const LoopHints& hints);

}  // namespace kw::cpu
