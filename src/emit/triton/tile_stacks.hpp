// Tiles that are stacked along a lane of two or four, and taken apart again.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace kw::triton {

// The call that stacks the parts, or, with one text and its number of parts, takes a tile apart. `dimensions`: those of
// a part, one or two. Throws kInternal where there is no such call.
std::string stack_text(const std::vector<std::string>& parts, size_t dimensions, std::set<std::string>& helpers);
std::string unstack_text(const std::string& stacked, size_t parts, size_t dimensions, std::set<std::string>& helpers);

}  // namespace kw::triton
