// Where a graph's tensors are.
#pragma once

#include <string>

#include "ir/graph.hpp"

namespace kw {

// The device on which the graph lives, as captured. Single tensors may be elsewhere: a result on the CPU, say.
std::string device_of(const Graph& graph);

}  // namespace kw
