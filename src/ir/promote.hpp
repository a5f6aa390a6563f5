// PyTorch's type promotion and broadcasting.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.hpp"

namespace kw {

// The common type of two tensors of the same category (torch.promote_types); nullopt where PyTorch has none (8-bit
// floats).
std::optional<DType> promote_types(DType left, DType right);

// torch.result_type over the named arguments of a node, tensors and numbers alike: tensors with axes decide before 0-d
// tensors, and those before numbers, unless the later is of a higher category. nullopt where the default dtype would
// decide (an integer tensor with a float number).
std::optional<DType> result_type(const Graph& graph, const Node& node, const std::vector<std::string_view>& arguments);

// The common shape, or nullopt where the shapes do not broadcast.
std::optional<Shape> broadcast(const Shape& left, const Shape& right);

// `axis` counted from the front; nullopt outside the rank (a 0-d tensor counts as one axis).
std::optional<int64_t> normalise_axis(int64_t axis, int64_t rank);

}  // namespace kw
