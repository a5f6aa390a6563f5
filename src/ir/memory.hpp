// Which values of a graph may lie in one memory.
#pragma once

#include <map>
#include <set>

#include "ir/graph.hpp"

namespace kw {

// What a call leaves in an input → that input. Left out are those that the call returns as well.
std::map<ValueId, ValueId> updates_of(const Graph& graph);

// The inputs that a call writes to.
std::set<ValueId> written_inputs(const Graph& graph);

// May a result be the operand itself, though the operator is no view?
bool may_be_its_operand(const Node& node);

}  // namespace kw
