// Adaptive pooling over several axes, folded along the outer ones first.
#pragma once

#include <functional>

#include "passes/rewriter.hpp"

namespace kw {

// Where lanes of SIMD take what a loop does: a window of 10 by 10 starts anywhere, so that a loop along it has too few
// elements for SIMD and a loop across windows reads single ones. Folding whole rows first has a loop along each row;
// what is left of it is short. Averages (of single and double precision, whose average is the average of the rows'
// averages, all of one count) and maxima whose positions nobody reads. Where windows have several sizes along the
// innermost axis. The node stays, reading rows that are folded already.
void fold_rows_first(Rewriter& rewriter, Node& node, const std::function<bool(ValueId)>& is_read);

}  // namespace kw
