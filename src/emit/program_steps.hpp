// What is asked of a Program's steps, and their order.
#pragma once

#include <set>
#include <string>

#include "emit/program.hpp"

namespace kw {

// Tensors by name that the step needs to be there: what it reads, and where it writes.
std::set<std::string> tensors_of(const Graph& graph, const Step& step);

// The program with each allocation right before the first step that needs it: what a device runs has begun by then, so
// that the time the host takes for the others does not count.
Program with_late_allocations(const Graph& graph, Program program);

}  // namespace kw
