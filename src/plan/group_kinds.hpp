// The kinds of groups that targets have schedulers for, under the names that schedules call them by.
#pragma once

#include "plan/group_lowering.hpp"

namespace kw::plan {

inline constexpr std::string_view kPointwise = "pointwise", kScan = "scan", kBags = "bags", kSliding = "sliding",
                                  kReduction = "reduction", kNormalisation = "normalisation";

bool is_pointwise(const LoweredGroup& group);
bool is_scan(const LoweredGroup& group);     // and sorts
bool is_bags(const LoweredGroup& group);     // folds over rows of which only the data tell where they begin and end
bool is_sliding(const LoweredGroup& group);  // folds over windows of neighbouring elements
bool is_reduction(const LoweredGroup& group);
bool is_normalisation(const LoweredGroup& group);  // stores along what it folds

// The dearest operation of the group's expressions, in additions; 0: what a product gives is stored as it is, with its
// scale and bias.
int dearest_operation(const LoweredGroup& group);
inline constexpr int kDear = 20;  // tanh, erf, powers: more warps behind a product are worth their registers

// Readable names of their axes, once those are ordered: "bag", "entry"; "row", "window_row".
void name_bags(GroupKernel& kernel);
void name_windows(GroupKernel& kernel);

}  // namespace kw::plan
