// Folds that may end before their axis does: windows and bags whose length only an index or the data tell.
#pragma once

#include "plan/group_kernel.hpp"

namespace kw::cpu {

// From some place on along `axis`, does the Reduce take nothing in, for it says so by a condition (axis < expression)
// whose bound is the same along all serial axes?
bool ends_early_along(const plan::GroupKernel& kernel, int axis, plan::ExprId reduce);

}  // namespace kw::cpu
