#include "ir/devices.hpp"

namespace kw {

std::string device_of(const Graph& graph) {
  for (const GraphInput& input : graph.inputs)
    if (input.kind != InputKind::kConstant) return graph.type(input.value).device;
  return graph.values.empty() ? "cpu" : graph.values[0].type.device;
}

}  // namespace kw
