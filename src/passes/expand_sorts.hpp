// Sorts of short rows by counting, for elements of 64 bits, which kernels that sort on chip cannot keep together with
// their places (SortForms::places_of_wide): an element's place is the number of those that come before it, and a
// scatter takes it there.
#pragma once

#include <functional>

#include "passes/rewriter.hpp"

namespace kw {

// Replaces the results of a sort or topk. False: the node stays.
bool expand_wide_sort(Rewriter& rewriter, const Node& node, const std::function<bool(ValueId)>& is_read);

}  // namespace kw
