// How far a loop has to go: what a mask leaves out behind that changes nothing.
#pragma once

#include <optional>
#include <vector>

#include "kernel/kernel.hpp"
#include "lower/values.hpp"

namespace kw::lower {

// An index f, free of the axis, such that points of the axis at and beyond f add nothing to any of these folds: maxima
// of select(condition, x, -inf), and sums of what scales with the exponential of such a value (online.hpp), where the
// condition compares the axis with f, alone or among others that must hold as well; select(condition, -inf, x) where it
// compares with f what is left out. (NaN and infinities that such a sum
// is multiplied with there do not come through.) nullopt where the folds do not all have the same f.
std::optional<kernel::Index> first_needless(const kernel::Kernel& kernel, const std::vector<kernel::ExprId>& folds,
                                            kernel::Symbol axis);

// An expression, a whole number that varies in no loop, from which point of the axis on none of these folds takes
// anything in, for each says so by a condition of its own (axis < expression): the length of a bag or of a window, or
// the last key of attention, that only the data tell. They are sums and extremes, and sums of what scales with the
// exponential of what is -inf there (online.hpp). kNoExpr where there is no such expression.
kernel::ExprId stop_of(const kernel::Kernel& kernel, const std::vector<kernel::ExprId>& folds, kernel::Symbol axis);

// Where a bounded loop may end for the points of a block. `folds`: nullopt where the loop does more than fold, which is
// refused, as are folds of which no mask says where they have all they need.
tile::Index bound_of(const Values& values, const MappedLoop& loop,
                     const std::optional<std::vector<kernel::ExprId>>& folds);

// Where it may begin: 0, or what whole steps a mask leaves out before (a window that slides with the queries).
tile::Index start_of(const Values& values, const MappedLoop& loop, const std::vector<kernel::ExprId>& folds);

// The largest of a whole number's points in a block.
tile::Value latest_of(Values& values, tile::Value number);

}  // namespace kw::lower
