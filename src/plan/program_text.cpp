#include "plan/program_text.hpp"

#include "ir/text.hpp"
#include "support/text.hpp"

namespace kw {

namespace {

std::string name_of_node(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  for (ValueId result : node.results)
    if (result != kNoValue) return "%" + graph.values[result].name;
  return "@" + std::to_string(id);
}

struct StepText {
  const Graph& graph;
  const Program& program;

  std::string operator()(const AllocateStep& step) const {
    return (step.zeros ? "allocate zeros " : "allocate ") + step.name + " : " + print(step.type);
  }
  std::string operator()(const TileStep& step) const {
    const std::string repeated = step.repetition ? "for " + step.repetition->size + " = 0 to " +
                                                       std::to_string(step.repetition->count) + ": "
                                                 : "";
    return (step.by_last ? "then, in its last program, " : "") + repeated + program.tiles[step.program].name + "(" +
           join(step.tensors, ", ") + (step.repetition ? ", " + step.repetition->size : "") + ")";
  }
  std::string operator()(const ExternStep& step) const { return "call " + print(graph, graph.nodes[step.node]); }
  std::string operator()(const ViewStep& step) const {
    return "view " + graph.values[step.value].name + " = " + step.base + " as " + print(step.type);
  }
  std::string operator()(const CopyStep& step) const {
    return "copy " + step.part + " to " + std::to_string(step.start) + " of dimension " + std::to_string(step.dim) +
           " of " + step.whole;
  }
};

}  // namespace

std::string print(const Graph& graph, const Schedule& schedule) {
  std::string text = "schedule " + schedule.target + (schedule.graphs ? " graphs {\n" : " {\n");
  for (const auto& group : schedule.groups) {
    text += "  " + group.scheduler;
    for (NodeId node : group.nodes) text += " " + name_of_node(graph, node);
    if (!group.parameters.empty()) text += " :";
    for (const auto& [name, value] : group.parameters) text += " " + name + "=" + std::to_string(value);
    text += "\n";
  }
  return text + "}\n";
}

std::string print(const Graph& graph, const Program& program) {
  std::string text = "program {\n";
  for (const auto& step : program.steps) text += "  " + std::visit(StepText{graph, program}, step) + "\n";
  return text + "}\n";
}

}  // namespace kw
