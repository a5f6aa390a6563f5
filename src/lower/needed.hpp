// How far a loop has to go: what a mask leaves out behind that changes nothing.
#pragma once

#include <optional>
#include <vector>

#include "kernel/kernel.hpp"

namespace kw::lower {

// An index f, free of the axis, such that points of the axis at and beyond f add nothing to any of these folds: maxima
// of select(condition, x, -inf), and sums of what scales with the exponential of such a value (online.hpp), where the
// condition compares the axis with f, alone or among others that must hold as well. (NaN and infinities that such a sum
// is multiplied with there do not come through.) nullopt where the folds do not all have the same f.
std::optional<kernel::Index> first_needless(const kernel::Kernel& kernel, const std::vector<kernel::ExprId>& folds,
                                            kernel::Symbol axis);

}  // namespace kw::lower
