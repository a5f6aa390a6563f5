#include "plan/cost.hpp"

#include <algorithm>

#include "ir/op_registry.hpp"
#include "plan/traffic.hpp"

namespace kw {

std::vector<Cost> group_costs(const plan::GraphFacts& facts, const Schedule& schedule) {
  std::vector<Cost> costs;
  for (const auto& group : schedule.groups) {
    Cost cost;
    for (NodeId node : group.nodes) cost.flops += flops(facts.graph, facts.graph.nodes[node]);
    cost.bytes = plan::bytes_moved(facts, group.nodes, plan::outputs_of(facts, group.nodes));
    costs.push_back(cost);
  }
  return costs;
}

int64_t peak_bytes(const Graph& graph) {
  const std::vector<ValueId> roots = plan::storage_roots(graph, plan::kinds_of(graph));
  std::vector<NodeId> last(graph.values.size(), kNoNode);
  for (NodeId node = 0; node < static_cast<NodeId>(graph.nodes.size()); ++node) {
    const auto note = [&](ValueId value) { last[static_cast<size_t>(roots[value])] = node; };
    for_each_operand(graph.nodes[node], note);
    for (const ValueId result : graph.nodes[node].results)
      if (result != kNoValue) note(result);
  }
  std::vector<std::vector<ValueId>> ends(graph.nodes.size());
  for (size_t value = 0; value < last.size(); ++value)
    if (last[value] != kNoNode) ends[static_cast<size_t>(last[value])].push_back(static_cast<ValueId>(value));
  std::vector<bool> made(graph.values.size());
  int64_t held = 0, peak = 0;
  for (NodeId node = 0; node < static_cast<NodeId>(graph.nodes.size()); ++node) {
    for (const ValueId result : graph.nodes[node].results)
      if (result != kNoValue && roots[result] == result) {
        made[static_cast<size_t>(result)] = true;
        held += graph.type(result).bytes();
      }
    peak = std::max(peak, held);
    for (const ValueId value : ends[static_cast<size_t>(node)])
      if (made[static_cast<size_t>(value)]) held -= graph.type(value).bytes();
  }
  return peak;
}

int64_t bytes_in_work(const Graph& graph) {
  int64_t bytes = peak_bytes(graph) * 2 / 3;
  for (const GraphInput& input : graph.inputs) bytes += graph.type(input.value).bytes();
  for (const GraphOutput& output : graph.outputs) bytes += graph.type(output.value).bytes();
  return bytes;
}

double roofline_seconds(const Cost& cost, const DeviceDescription& device) {
  const double memory = device.copy_bytes_per_second > 0 ? cost.bytes / device.copy_bytes_per_second : 0;
  const double arithmetic = device.fp32_flops > 0 ? cost.flops / device.fp32_flops : 0;
  return std::max(memory, arithmetic);
}

}  // namespace kw
