// Which element of each operand one element of a result needs, op by op: the only place that knows how views,
// broadcasts, cat and padding move elements about.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.hpp"
#include "plan/index_math.hpp"
#include "plan/lookup.hpp"
#include "plan/op_table.hpp"

namespace kw::plan {

// The operand's element at `coords`, needed where the guards hold.
struct Pull {
  ValueId value = kNoValue;
  Coords coords;
  std::vector<Guard> guards;
};

// Operands of a view or pointwise node in argument order (for_each_operand), for the element `coords` of result
// `result`. Of an op that looks up (embedding, gather), the table that it reads comes first and its indices after it.
// nullopt: not expressible, or an op that this table does not know.
std::optional<std::vector<Pull>> pull(const Graph& graph, NodeId node, int result, const Coords& coords,
                                      Lookups& lookups);

// Does the op read one operand at a place that is looked up?
bool looks_up(const Node& node);

// Coordinates in the view's result of the operand's element at `coords`, for views that keep every element; else
// nullopt.
std::optional<Coords> push_view(const Graph& graph, NodeId node, const Coords& coords, SymbolRanges ranges);

// Coordinates in a tensor of shape `to` that broadcasts to `from`.
Coords broadcast(const Coords& coords, const Shape& from, const Shape& to);

// Does the op combine elements at equal (broadcast) coordinates?
bool is_elementwise(const Graph& graph, NodeId node);

}  // namespace kw::plan
