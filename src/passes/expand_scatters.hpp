// Ops that write where indices say, as the few that have kernels: means as sums and counts, folds without the element's
// own value as folds into one that changes nothing, masks as choices.
#pragma once

#include <optional>

#include "passes/maths.hpp"

namespace kw {

// Of scatter_reduce, index_reduce and index_put; nullopt: the call stays as it is.
std::optional<Term> expand_scatter(Rewriter& rewriter, const Node& node);

// x + index_add(zeros, …) = index_add(x, …), which spares a tensor and a pass over it. Reassociates. `is_read_once`:
// whether one node alone reads a value.
template <typename IsReadOnce>
std::optional<Term> scatter_into_addend(Rewriter& rewriter, const Node& node, IsReadOnce&& is_read_once);

// The scatter that `id` is, if it adds few numbers up in each element, in a type whose roundings that does not show in,
// and starts from zeros; else nullptr.
const Node* sum_into_zeros(const Rewriter& rewriter, ValueId id);

template <typename IsReadOnce>
std::optional<Term> scatter_into_addend(Rewriter& rewriter, const Node& node, IsReadOnce&& is_read_once) {
  if (node.op != "aten.add.Tensor" || node.number("alpha", 1.0) != 1.0) return std::nullopt;
  const ValueId left = node.value("self"), right = node.value("other");
  if (left == kNoValue || right == kNoValue || left == right) return std::nullopt;
  for (const auto& [sum, addend] : {std::pair{left, right}, std::pair{right, left}}) {
    const Node* scatter = is_read_once(sum) ? sum_into_zeros(rewriter, sum) : nullptr;
    const TensorType &type = rewriter.type(node.results[0]), &other = rewriter.type(addend);
    if (!scatter || other.shape != type.shape || other.dtype != type.dtype || other.device != type.device ||
        rewriter.type(sum).shape != type.shape)
      continue;
    std::vector<NamedArgument> arguments = scatter->arguments;
    const std::string op = scatter->op;
    for (NamedArgument& argument : arguments)
      if (argument.name == "self") argument.value = ValueRef{addend};
    return Term(rewriter, rewriter.emit(op, std::move(arguments), type));
  }
  return std::nullopt;
}

}  // namespace kw
