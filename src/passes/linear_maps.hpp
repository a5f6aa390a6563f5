// Matrix products as linear maps: what the passes that do algebra with them read of a node.
#pragma once

#include <optional>

#include "ir/graph.hpp"

namespace kw {

// alpha · left · right + beta · addend, or left · rightᵀ where `right` is the weight of a linear layer.
struct LinearMap {
  ValueId left = kNoValue, right = kNoValue, addend = kNoValue;
  double alpha = 1.0, beta = 1.0;
  int64_t outputs = 0;  // the axis of `right` along which the outputs lie

  int64_t inputs() const { return 1 - outputs; }
};

// Of linear, mm, addmm, and matmul by a matrix, in f32 or f64: others round what algebra would leave out. nullopt for
// other nodes.
std::optional<LinearMap> linear_map_of(const Graph& graph, const Node& node);

}  // namespace kw
