// The rows of the table of operators (op_registry.hpp).
#pragma once

#include <vector>

#include "ir/op_registry.hpp"

namespace kw {

// A row for each operator, those of which the planner knows nothing among them. Names are unique.
const std::vector<OpInfo>& op_rows();

}  // namespace kw
