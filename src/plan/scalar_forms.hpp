// One element of a pointwise operator as an expression with PyTorch's semantics (promotion, NaN, −0, integer division):
// the formula in the operator's row (ir/op_rows.cpp), with the elements of its operands in place.
//
//   softplus   scaled = self * beta|1; select(scaled > threshold|20, self, log1p(exp(scaled)) / beta|1)
//
// A name is an argument of the node, and after `|` stands what it is where it is not given. Operators and functions are
// those of a kernel's text (docs/kernel.md), another operator's formula among them: xlogy(a, b) with `self` and
// `other`. `name = …;` names a part. Numbers take the type of what they meet; what is made of numbers alone is computed
// in double precision and decides a `select` at once, as do given(name), is(name, word), and `floating` and `double`,
// the type's kinds. `largest` is the result type's largest number, `row` and `column` say where its element stands.
#pragma once

#include <map>

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
};

bool has_form(const Node& node);
// Of a loss: before its reduction.
ExprId element_by_form(const ScalarContext& context);

}  // namespace kw::plan
