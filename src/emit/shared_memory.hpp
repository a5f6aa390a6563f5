// A call that hands over one memory twice, or a module whose tensors have come to share theirs: kernels that write to
// it would not know who else reads it.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace kw {

// Python text. Both parts are empty where forward writes to none of `inputs`, which are in the order of the tuple
// `tensors`.
struct SharedMemoryCheck {
  std::string definitions;  // at the top of the file: written_memory_is_shared(addresses)
  std::string reason;       // why the kernels cannot run where it is
};
SharedMemoryCheck shared_memory_check(const Graph& graph, const std::vector<GraphInput>& inputs);

}  // namespace kw
