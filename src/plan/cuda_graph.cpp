#include "plan/cuda_graph.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ir/op_registry.hpp"
#include "plan/domain.hpp"
#include "plan/estimate.hpp"
#include "plan/rounded_values.hpp"

namespace kw {
namespace {

// Of the host, to launch one kernel from Python: Triton's launcher takes 10 to 25 microseconds, an operator of
// PyTorch's 5 to 10 and a convolution's 30, the tensors that are made for them as much again. Networks of 65 to 200
// launches took 40 to 90 microseconds a launch on an H100 whose host had other work, too.
constexpr double kHostSecondsOfLaunch = 30e-6;
// Fewer launches are over before the host's time matters.
constexpr int kFewestLaunches = 5;
// Kernels run while later ones are launched: a graph saves what the host takes longer than the device, and the gaps
// where it falls behind. Where the device takes much longer it saves nothing, and costs memory for every tensor between
// its kernels.
constexpr double kHostOverDevice = 0.6;
// Of what a graph is expected to save.
constexpr double kCopiesOverGain = 0.25;
// Of the rate for the operands' type, what the library reaches; of half products, its convolutions in TF32.
constexpr double kLibraryShare = 0.9, kLibraryShareOfTf32Convolutions = 0.13;

// PyTorch finds the places of a boolean index on the host.
bool has_boolean_index(const Graph& graph, const Node& node) {
  if (rule_of(node) != OpRule::kIndex && rule_of(node) != OpRule::kIndexPut) return false;
  bool found = false;
  for_each_operand(node, [&](ValueId operand) {
    const DType dtype = graph.type(operand).dtype;
    found = found || ((dtype == DType::b1 || dtype == DType::u8) && operand != node.value("self"));
  });
  return found;
}

std::string why_not_captured(const Graph& graph, const Node& node) {
  const OpInfo& info = op_info(node.op);
  if ((info.flags & kReplayed) && node.find("generator") == nullptr) return "";
  const bool may_be_random = info.op_class == OpClass::kRandom || info.op_class == OpClass::kAttention ||
                             info.op_class == OpClass::kRecurrent;
  if (!is_pure(node))
    return may_be_random ? "it takes random numbers" : "nothing is known of the effects of " + node.op;
  if ((info.flags & kWaits) || has_boolean_index(graph, node)) return node.op + " may wait for the device";
  return "";
}

double seconds_of(const Graph& graph, const Node& node, const DeviceDescription& device) {
  const bool convolves = class_of(node.op) == OpClass::kConvolution;
  double rate = device.fp32_flops * kLibraryShare;
  for (const ValueId result : node.results) {
    if (result == kNoValue) continue;
    if (size_of(graph.type(result).dtype) == 2) rate = device.half_flops * kLibraryShare;
    else if (convolves && graph.tf32_convolutions) rate = device.half_flops * kLibraryShareOfTf32Convolutions;
    else if (plan::rounds_operands(graph, node)) rate = device.half_flops / 2 * kLibraryShare;
    break;
  }
  return std::max(bytes_moved(graph, node) / std::max(device.copy_bytes_per_second, 1.0),
                  flops(graph, node) / std::max(rate, 1.0));
}

bool is_input(const Graph& graph, ValueId value) {
  return std::any_of(graph.inputs.begin(), graph.inputs.end(),
                     [&](const GraphInput& input) { return input.value == value; });
}

std::string why_not_inputs(const Graph& graph) {
  bool passed = false;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != InputKind::kUser && passed) return "what a call passes is not the last of its tensors";
    passed = passed || input.kind == InputKind::kUser;
    if (input.kind == InputKind::kUser && !graph.type(input.value).is_dense())
      return "a tensor that a call passes does not fill its memory";
  }
  return passed ? "" : "a call passes no tensor";
}

std::string why_not_outputs(const Graph& graph) {
  const std::vector<ValueId> roots = plan::storage_roots(graph, plan::kinds_of(graph));
  bool returned = false;
  for (const GraphOutput& output : graph.outputs) {
    if (output.kind == OutputKind::kInputMutation) return "it writes to what a call passes";
    if (output.kind != OutputKind::kUser) continue;
    returned = true;
    if (is_input(graph, roots[output.value])) return "it returns a tensor that it was given";
    if (!graph.type(output.value).is_dense()) return "a result does not fill its memory";
  }
  return returned ? "" : "it returns no tensor";
}

// All but inputs that nothing reads: a module may hold a tensor elsewhere that its forward does not use.
std::vector<ValueId> used_values(const Graph& graph) {
  std::vector<bool> used(graph.values.size());
  for (const GraphInput& input : graph.inputs) used[input.value] = input.kind == InputKind::kUser;
  for (const GraphOutput& output : graph.outputs)
    if (output.value != kNoValue) used[output.value] = true;
  for (const Node& node : graph.nodes) {
    for_each_operand(node, [&](ValueId operand) { used[operand] = true; });
    for (const ValueId result : node.results)
      if (result != kNoValue) used[result] = true;
  }
  std::vector<ValueId> values;
  for (size_t value = 0; value < used.size(); ++value)
    if (used[value]) values.push_back(static_cast<ValueId>(value));
  return values;
}

}  // namespace

std::string why_not_captured(const Graph& graph, const Program& program) {
  std::string device;
  for (const ValueId value : used_values(graph)) {
    const std::string& own = graph.type(value).device;
    if (!own.starts_with("cuda") || own != (device.empty() ? own : device)) return "its tensors are not all on one GPU";
    device = own;
  }
  if (const std::string reason = why_not_inputs(graph); !reason.empty()) return reason;
  if (const std::string reason = why_not_outputs(graph); !reason.empty()) return reason;
  const auto source = nlohmann::json::parse(graph.source_json, nullptr, false);
  if (source.is_object() && source.contains("begins")) return "it reads memory around what a call passes";
  for (const Step& step : program.steps) {
    const auto* call = std::get_if<ExternStep>(&step);
    if (!call) continue;
    if (call->mask_vector > 0) return "it takes random numbers";
    if (const std::string reason = why_not_captured(graph, graph.nodes[call->node]); !reason.empty()) return reason;
  }
  return "";
}

LaunchCosts launch_costs(const Graph& graph, const Program& program, const DeviceDescription& device) {
  LaunchCosts costs;
  std::map<int, double> of_tiles;  // the same kernel may run at many steps
  for (const Step& step : program.steps) {
    if (const auto* tiles = std::get_if<TileStep>(&step)) {
      const int64_t times = tiles->repetition ? tiles->repetition->count : 1;
      costs.launches += tiles->by_last ? 0 : static_cast<int>(times);
      const auto [known, is_new] = of_tiles.try_emplace(tiles->program, 0.0);
      if (is_new) known->second = seconds_of(program.tiles[tiles->program], device);
      costs.device += static_cast<double>(times) * known->second;
    } else if (const auto* call = std::get_if<ExternStep>(&step)) {
      costs.launches += 1;
      costs.device += seconds_of(graph, graph.nodes[call->node], device);
    }
  }
  double bytes = 0;  // each is read once and written once
  for (const GraphInput& input : graph.inputs)
    if (input.kind == InputKind::kUser) bytes += 2 * static_cast<double>(graph.type(input.value).bytes());
  for (const GraphOutput& output : graph.outputs)
    if (output.kind == OutputKind::kUser) bytes += 2 * static_cast<double>(graph.type(output.value).bytes());
  costs.copies = bytes / std::max(device.copy_bytes_per_second, 1.0);
  costs.host = costs.launches * kHostSecondsOfLaunch;
  return costs;
}

bool graph_pays(const LaunchCosts& costs) {
  return costs.launches >= kFewestLaunches && costs.host > kHostOverDevice * costs.device &&
         costs.copies < kCopiesOverGain * (costs.host - kHostOverDevice * costs.device);
}

}  // namespace kw
