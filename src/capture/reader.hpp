// Graph JSON (docs/worker-protocol.md) → Graph.
#pragma once

#include <string>

#include "ir/graph.hpp"

namespace kw {

// Checks the result with verify(). Throws kUser for a dtype that we do not know, kInternal where the text breaks the
// protocol.
Graph read_graph(const std::string& json_text);

}  // namespace kw
