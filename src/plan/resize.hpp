// Interpolation as lookups along each axis: which elements a result's element is made of, in PyTorch's own arithmetic
// (area_pixel_compute_source_index and its kin in ATen/native/UpSample.h). Their weights are in lookup_values.hpp.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.hpp"
#include "plan/lookup.hpp"

namespace kw::plan {

struct ResizeAxis {
  LookupKind kind = LookupKind::kNearest;  // of its lookups: kNearest, kNearestExact, kLinear, kCubic
  int64_t from = 1, to = 1;                // extents
  double scale = 1.0;                      // steps in the operand for one in the result, before it is rounded to `work`
  bool aligned = false;                    // align_corners
  DType work = DType::f32;
};

// The spatial axes, outermost first, of upsample_nearest…, upsample_linear1d, upsample_bilinear2d,
// upsample_trilinear3d, upsample_bicubic2d; nullopt for other ops, and where they resize what is no floating-point
// tensor by weights.
std::optional<std::vector<ResizeAxis>> resize_axes(const Graph& graph, const Node& node);

// Elements along the axis that position `position` of the result is made of: one for nearest, two for linear, four for
// cubic.
std::vector<Lookup> taps_of(const ResizeAxis& axis, const Index& position);

// Where nearest's element is an affine function of the position after all, as it is for whole factors.
std::optional<Index> affine_nearest(const ResizeAxis& axis, const Index& position, SymbolRanges ranges);

}  // namespace kw::plan
