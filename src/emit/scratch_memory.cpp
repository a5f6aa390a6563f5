#include "emit/scratch_memory.hpp"

#include <algorithm>
#include <vector>

#include "ir/memory.hpp"

namespace kw {
namespace {

constexpr int64_t kAlignment = 512;  // bytes, PyTorch's own

// What a step needs more of than its address.
std::set<std::string> needed_whole(const Graph& graph, const Program& program) {
  std::set<std::string> names;
  const auto with_offset = [&](const std::vector<std::string>& tensors, const std::vector<int64_t>& offsets) {
    for (size_t at = 0; at < std::min(tensors.size(), offsets.size()); ++at)
      if (offsets[at] != 0) names.insert(tensors[at]);
  };
  for (const Step& step : program.steps) {
    if (const auto* tiles = std::get_if<TileStep>(&step)) {
      with_offset(tiles->tensors, tiles->offsets);
      if (tiles->repetition) names.insert(tiles->tensors.begin(), tiles->tensors.end());
    }
    if (const auto* view = std::get_if<ViewStep>(&step)) names.insert(view->base);
    if (const auto* copy = std::get_if<CopyStep>(&step)) names.insert({copy->part, copy->whole});
    if (const auto* call = std::get_if<ExternStep>(&step))
      for_each_operand(graph.nodes[call->node], [&](ValueId value) { names.insert(graph.values[value].name); });
  }
  return names;
}

}  // namespace

ScratchMemory scratch_memory(const Graph& graph, const Program& program, const std::set<std::string>& apart) {
  const std::set<std::string> whole = needed_whole(graph, program);
  ScratchMemory scratch;
  for (const Step& step : program.steps) {
    const auto* allocate = std::get_if<AllocateStep>(&step);
    if (allocate == nullptr || allocate->zeros) continue;
    const std::string& name = allocate->name.empty() ? graph.values[allocate->value].name : allocate->name;
    const TensorType& type = allocate->type;
    if (whole.contains(name) || apart.contains(name) || !type.is_contiguous() || is_eight_bit_float(type.dtype) ||
        (!scratch.device.empty() && type.device != scratch.device))
      continue;
    scratch.device = type.device;
    scratch.starts[name] = scratch.bytes;
    scratch.bytes += (type.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return scratch.starts.size() > 1 ? scratch : ScratchMemory{};
}

}  // namespace kw
