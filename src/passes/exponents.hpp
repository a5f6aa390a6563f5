// Exponentials of running sums, exp(s[i] − s[j]) with s = cumsum(x) in single precision: the sums, and what stands
// between them and the exponential, are computed in double precision. A sum of 64 is rounded by up to 2e-6, and its
// exponential by that share of itself: where one element outweighs all others (the decays of a state-space model), that
// is the result's error, whatever else is exact. Precondition: cumsums of f32, and between them and the exponential
// only sums, differences, factors, masks, padding and views, 64 nodes at most. The exponential is f32's, of the
// exponent's two parts in f32 (exponents.cpp).
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

RewriteCounts exponents(Graph& graph);

}  // namespace kw
