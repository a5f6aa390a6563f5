// A convolution's group: the nodes that make its image element by element, the convolution, and what follows it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plan/group_lowering.hpp"

namespace kw::plan {

// nullopt where what follows is not pointwise over the convolution's own elements or a fold over its filters, where the
// image is not made element by element, and where one of the two cannot be embedded (embedding.hpp). What neither makes
// nor reads the convolution's operands and result is made with the image.
std::optional<LoweredGroup> lower_with_convolution(const GraphFacts& facts, std::span<const NodeId> nodes,
                                                   NodeId convolution, const std::vector<ValueId>& outputs);

}  // namespace kw::plan
