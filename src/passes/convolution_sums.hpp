// Algebra of convolutions: what sums or averages a convolution's result is less work than the convolution.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// A convolution is linear in its image and in its filters. So
//   - its sum or mean over all positions is a product of the filters and of sums of the image: each tap meets all of
//   the
//     image but for some lines at its borders;
//   - its sum or mean over the filters is a convolution with one filter;
//   - its average over windows that do not overlap is a convolution with wider filters and strides: of k taps and
//     windows of p positions (k + p − 1) / (k p) of the work along each dimension.
// Numbers that scale the result in between stay. Only where nothing else reads the convolution, without groups, in f32
// and f64 (others round it in between). Where an infinity of the image meets several taps or filters, whose results are
// summed, the sum is NaN, as eager's is unless all of them have one sign.
RewriteCounts convolution_sums(Graph& graph);

}  // namespace kw
