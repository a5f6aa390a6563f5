// Sorts of short rows by counting: an element's place is the number of those that come before it, and a scatter takes it there. So many comparisons cost less than
// the passes of a sort as long as a row is short.
#pragma once

#include <functional>

#include "passes/rewriter.hpp"

namespace kw {

// Replaces the results of a sort, and of a topk whose indices nothing reads (which of equal elements it takes is PyTorch's secret). False: the node stays.
bool expand_sort(Rewriter& rewriter, const Node& node, const std::function<bool(ValueId)>& is_read);

}  // namespace kw
