#include "emit/program_steps.hpp"

#include <map>
#include <vector>

namespace kw {

std::set<std::string> tensors_of(const Graph& graph, const Step& step) {
  std::set<std::string> names;
  if (const auto* tensors = kernel_tensors(step)) names.insert(tensors->begin(), tensors->end());
  if (const auto* view = std::get_if<ViewStep>(&step)) names.insert(view->base);
  if (const auto* copy = std::get_if<CopyStep>(&step)) names.insert({copy->part, copy->whole});
  if (const auto* call = std::get_if<ExternStep>(&step))
    for_each_operand(graph.nodes[call->node], [&](ValueId value) { names.insert(graph.values[value].name); });
  return names;
}

Program with_late_allocations(const Graph& graph, Program program) {
  std::vector<Step>& steps = program.steps;
  std::map<std::string, size_t> needed;                   // first by which step, of those behind
  std::vector<std::vector<size_t>> before(steps.size());  // [step] allocations that come right before it, last first
  for (size_t at = steps.size(); at-- > 0;) {
    if (const auto* allocate = std::get_if<AllocateStep>(&steps[at])) {
      const auto found = needed.find(allocate->name.empty() ? graph.values[allocate->value].name : allocate->name);
      before[found == needed.end() ? at : found->second].push_back(at);
      continue;
    }
    // Of two kernels in one launch the first.
    for (const std::string& name : tensors_of(graph, steps[at])) needed[name] = is_by_last(steps[at]) ? at - 1 : at;
  }
  std::vector<Step> late;
  for (size_t at = 0; at < steps.size(); ++at) {
    for (auto allocation = before[at].rbegin(); allocation != before[at].rend(); ++allocation)
      late.push_back(std::move(steps[*allocation]));
    if (!std::holds_alternative<AllocateStep>(steps[at])) late.push_back(std::move(steps[at]));
  }
  steps = std::move(late);
  return program;
}

}  // namespace kw
