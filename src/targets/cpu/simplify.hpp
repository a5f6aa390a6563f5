// Rewrites a kernel into what loops over scalars print best; the meaning stays the same.
//   - axes of extent 1 leave every index;
//   - an axis that is only read through quotients and remainders is split into the axes those stand for, so that no
//   loop divides;
//   - a short axis along which all stores are contiguous is joined with the one that continues it in memory, quotients
//   and remainders in the loads;
//   - compound reductions become simple ones over expressions that other parts of the kernel can share:
//       max_sum_exp(x)  →  m = max(x),  Σ e^(x − m)          (softmax's own e^(x − m) is then computed once)
//       moments(x)      →  Σ d,  Σ d²  with d = x − x[0]       in double precision, one pass; two passes for f64
//       arg_max(x)      →  m = max(x),  the least of the places where x = m or x is NaN
//       any(x)          →  max of 0 and 1
//   - sums of f64 become extended ones;
//   - 16- and 8-bit floats that are only moved and chosen are not widened for it;
//   - equal expressions become one.
#pragma once

#include <vector>

#include "plan/group_kernel.hpp"
#include "targets/cpu/loop_hints.hpp"

namespace kw::cpu {

constexpr int64_t kShort = 8;  // SIMD along fewer elements than this gains nothing

struct Simplified {
  plan::GroupKernel kernel;
  LoopHints hints;
};

// Axes of extent 1 leave every index.
void drop_unit_axes(plan::GroupKernel& kernel);

Simplified simplify(const plan::GroupKernel& kernel, const LoopHints& hints);

}  // namespace kw::cpu
