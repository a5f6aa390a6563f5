// Where the operands and the result of a reduction or scan lie at a point of its domain.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.hpp"
#include "plan/index_math.hpp"
#include "plan/op_table.hpp"
#include "plan/pull.hpp"

namespace kw::plan {

// The points by which a scan's result at `wanted` lies before the one at `at`, its place in the domain: nullopt where
// the two differ in anything else. Reading a scan further back is scanning its operand further back.
std::optional<int64_t> scan_shift(const ReduceSpec& spec, const Coords& at, const Coords& wanted);

// All tensor operands of a reduce node at a point of its domain, in argument order.
std::optional<std::vector<Pull>> pull_reduce(const Graph& graph, NodeId node, const ReduceSpec& spec,
                                             const Coords& point, Lookups& lookups);

// Coordinates of a reduce node's result at a point of its domain.
std::optional<Coords> reduce_result_coords(const ReduceSpec& spec, const Coords& point, const Shape& result,
                                           SymbolRanges ranges);

}  // namespace kw::plan
