// masked_scatter: the elements that a mask marks are numbered by a scan, and each reads the source's element of its
// number.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// Replaces the result. False: the node stays.
bool expand_masked_scatter(Rewriter& rewriter, const Node& node);

}  // namespace kw
