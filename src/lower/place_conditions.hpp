// What conditions ask of places: comparisons of whole numbers that are made of axes and constants alone.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace kw::lower {

// Indices that are 0 or more wherever the condition, or that a number is not 0, holds; `not_`: where it does not hold.
// Of a condition that asks for more than this (data, one of two), what else it asks is left out.
std::vector<kernel::Index> asked_of_places(const kernel::Kernel& kernel, kernel::ExprId condition, bool not_ = false);

// Indices that are 0 or more wherever anything that is stored takes one of these expressions in: everywhere else a
// select drops it, or a mask leaves the store out. Empty where something takes it in everywhere, or data decide.
std::vector<kernel::Index> asked_where_used(const kernel::Kernel& kernel, const std::vector<kernel::ExprId>& used);

}  // namespace kw::lower
