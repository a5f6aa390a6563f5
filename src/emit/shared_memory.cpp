#include "emit/shared_memory.hpp"

#include <algorithm>

#include "emit/python_text.hpp"
#include "ir/memory.hpp"

namespace kw {
namespace {

constexpr std::string_view kFunction = R"py(@functools.lru_cache(maxsize=64)
def written_memory_is_shared(starts):
    """Whether the memory of a tensor that forward writes to is also another tensor's."""
    reach = written_reach = 0
    for start, extent, written in sorted(zip(starts, EXTENTS, WRITTEN)):
        if extent and start < (reach if written else written_reach):
            return True
        reach = max(reach, start + extent)
        written_reach = max(written_reach, start + extent if written else 0)
    return False


)py";

// Bytes from the first element to the end of the last.
int64_t extent_of(const TensorType& type) {
  if (type.elements() == 0) return 0;
  int64_t last = 0;
  for (size_t axis = 0; axis < type.shape.size(); ++axis) last += (type.shape[axis] - 1) * type.strides[axis];
  return (last + 1) * size_of(type.dtype);
}

}  // namespace

SharedMemoryCheck shared_memory_check(const Graph& graph, const std::vector<GraphInput>& inputs) {
  const std::set<ValueId> written = written_inputs(graph);
  std::vector<std::string> extents, flags;
  for (const GraphInput& input : inputs) {
    extents.push_back(std::to_string(extent_of(graph.type(input.value))));
    flags.push_back(written.contains(input.value) ? "True" : "False");
  }
  if (inputs.size() < 2 || std::find(flags.begin(), flags.end(), "True") == flags.end()) return {};
  std::string definitions =
      "# Of each of these tensors, the bytes from its first element to its last, and whether forward writes to it.\n";
  definitions += python::wrapped_call("EXTENTS = (", extents, ")") + "\n" +
                 python::wrapped_call("WRITTEN = (", flags, ")") + "\n\n\n";
  return {definitions + std::string(kFunction),
          "it writes to memory that two of its tensors share; give each its own with clone()"};
}

}  // namespace kw
