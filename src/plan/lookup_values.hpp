// The expressions of looked-up coordinates that are computed, and the weights of interpolation.
#pragma once

#include "plan/group_builder.hpp"
#include "plan/lookup.hpp"

namespace kw::plan {

// The coordinate, an i32 or i64; of every kind that names no tensor, whose value the caller loads.
ExprId computed_coordinate(GroupBuilder& build, const Lookup& lookup);

// The coordinate of kFractionalStart; `sample`: the number that it depends on, in its compute dtype.
ExprId fractional_start(GroupBuilder& build, const Lookup& lookup, ExprId sample);

// What the element that a tap of kLinear or kCubic finds is multiplied by.
ExprId weight_of_tap(GroupBuilder& build, const Lookup& tap);

}  // namespace kw::plan
