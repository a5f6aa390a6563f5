// The rows of the table of operators (op_registry.hpp).
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/op_registry.hpp"

namespace kw {

// A row for each operator, those of which the planner knows nothing among them. Names are unique.
const std::vector<OpInfo>& op_rows();

// "multiply" → "mul": the row's name of each synonym.
const std::unordered_map<std::string_view, std::string_view>& op_synonyms();

}  // namespace kw
