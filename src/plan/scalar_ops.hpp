// What one element of a pointwise ATen op is, as an expression, with PyTorch's semantics: type promotion, NaN, −0,
// integer division. One table, in scalar_ops.cpp, with that of the activations, in scalar_activations.cpp.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"
#include "plan/group_builder.hpp"

namespace kw::plan {

// One application: the node, its operands' elements, where in the result it stands.
struct ScalarContext {
  GroupBuilder& build;
  const Graph& graph;
  const Node& node;
  const std::map<ValueId, ExprId>& operands;  // per tensor operand, in its compute dtype
  const Coords& coords;                       // of the result's element
  DType result = DType::f32;                  // compute dtype of the result

  bool has(std::string_view argument) const;                  // given and not None
  ExprId argument(std::string_view name, DType dtype) const;  // tensor element or Python number, cast to dtype
  ExprId argument_or(std::string_view name, double fallback, DType dtype) const;
  ExprId self() const { return argument("self", result); }
  ExprId number(double value) const { return build.constant(result, value); }
};

// PyTorch's result_type of the node's named arguments: tensors of rank > 0 before scalars' tensors before Python
// numbers, by category.
DType promoted_dtype(const Graph& graph, const Node& node, std::initializer_list<std::string_view> arguments);

using ScalarLowering = ExprId (*)(const ScalarContext&);
ScalarLowering find_scalar_lowering(std::string_view base_name);  // nullptr when the table has none

ScalarLowering find_activation(std::string_view base_name);  // of these, the activations

std::vector<std::string_view> names_of_scalar_lowerings();  // all names of the table, in any order
std::vector<std::string_view> names_of_activations();

// log(1 + e^−|x|), which cannot overflow.
ExprId log1p_exp_negative_abs(const ScalarContext& context, ExprId x);

// One element of a loss, before its reduction.
ExprId loss_element(const ScalarContext& context);

}  // namespace kw::plan
