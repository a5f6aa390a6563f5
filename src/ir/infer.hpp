// What a node's results must be, from its operands and arguments: PyTorch's rules for the operators that passes write
// and the common rest.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.hpp"

namespace kw {

struct InferredType {
  std::optional<Shape> shape;  // nullopt: no rule for it
  std::optional<DType> dtype;
};

// One per result. Empty where nothing is known. `problem` is set where the operands contradict the operator ("[3] and
// [4] do not broadcast").
struct Inference {
  std::vector<InferredType> results;
  std::string problem;
};
Inference infer(const Graph& graph, const Node& node);

// Type of a view-class node's single result over its operand's strides and offset; nullopt where the operator is not
// understood, or not expressible as a strided view (a reshape that must copy).
std::optional<TensorType> infer_view(const Graph& graph, const Node& node);

// Strides that let `type`'s memory be read in `shape` (torch.Tensor.view's rule), or nullopt where only a copy can.
std::optional<Shape> view_strides(const TensorType& type, const Shape& shape);

}  // namespace kw
