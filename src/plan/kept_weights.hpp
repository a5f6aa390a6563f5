// What stands between attention's softmax and the product with the values, where it keeps or drops each weight and
// scales all of them by one number: dropout, or a mask after the softmax.
#pragma once

#include <memory>
#include <optional>

#include "plan/group_lowering.hpp"

namespace kw::plan {

// `group`: pointwise work behind what the softmax yields, its product. It has to be w · k · s, where k is 1 or 0 for
// each weight w, and s a number of all weights: then Σ w · k · s · v over a row is s · Σ w · k · v, whatever the
// weights are divided by. nullopt where it does anything else.
std::optional<KeptWeights> kept_weights(LoweredGroup group);

}  // namespace kw::plan
