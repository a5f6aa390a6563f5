#include "ir/memory.hpp"

#include <string_view>
#include <utility>

#include "ir/op_registry.hpp"

namespace kw {

namespace {

// Inputs by whether the caller gives them, and their target.
using Inputs = std::map<std::pair<bool, std::string_view>, ValueId>;

Inputs inputs_of(const Graph& graph) {
  Inputs inputs;
  for (const GraphInput& input : graph.inputs)
    inputs.emplace(std::pair(input.kind == InputKind::kUser, std::string_view(input.target)), input.value);
  return inputs;
}

ValueId target_of(const Inputs& inputs, const GraphOutput& output) {
  if (output.kind == OutputKind::kUser) return kNoValue;
  const auto input = inputs.find({output.kind == OutputKind::kInputMutation, output.target});
  return input == inputs.end() ? kNoValue : input->second;
}

}  // namespace

std::map<ValueId, ValueId> updates_of(const Graph& graph) {
  std::map<ValueId, int> times;
  for (const GraphOutput& output : graph.outputs) ++times[output.value];
  const Inputs inputs = inputs_of(graph);
  std::map<ValueId, ValueId> updates;
  for (const GraphOutput& output : graph.outputs) {
    const ValueId input = target_of(inputs, output);
    if (input != kNoValue && times[output.value] == 1 && !times.contains(input)) updates[output.value] = input;
  }
  return updates;
}

std::set<ValueId> written_inputs(const Graph& graph) {
  const Inputs inputs = inputs_of(graph);
  std::set<ValueId> written;
  for (const GraphOutput& output : graph.outputs)
    if (const ValueId input = target_of(inputs, output); input != kNoValue && input != output.value)
      written.insert(input);
  return written;
}

bool may_be_its_operand(const Node& node) { return op_info(node.op).flags & kMayAlias; }

}  // namespace kw
