#include "emit/tensor_uses.hpp"

namespace kw {

TensorUses tensor_uses(const Graph& graph, const Program& program, const std::map<std::string, std::string>& in_place,
                       std::set<std::string> aligned) {
  TensorUses uses;
  uses.aligned = std::move(aligned);
  for (const Value& value : graph.values) uses.types[value.name] = value.type;
  std::map<std::string, size_t> last_use;
  size_t last_allocation = 0;
  for (size_t index = 0; index < program.steps.size(); ++index) {
    const auto read = [&](const std::string& name) {
      uses.used.insert(name);
      last_use[name] = index;
    };
    if (const auto* step = std::get_if<AllocateStep>(&program.steps[index])) {
      const std::string& name = step->name.empty() ? graph.values[step->value].name : step->name;
      uses.types[name] = step->type;
      uses.made.push_back(name);
      if (!in_place.contains(name)) uses.aligned.insert(name);
      last_allocation = index;
    } else if (const auto* tensors = kernel_tensors(program.steps[index])) {
      for (const std::string& name : *tensors) {
        read(name);
        uses.strides_matter.insert(name);
      }
    } else if (const auto* step = std::get_if<ViewStep>(&program.steps[index])) {
      read(step->base);
      uses.strides_matter.insert(step->base);
      const std::string& name = graph.values[step->value].name;
      uses.made.push_back(name);
      if (uses.aligned.contains(step->base)) uses.aligned.insert(name);
      uses.types[name] = step->type;
    } else if (const auto* step = std::get_if<CopyStep>(&program.steps[index])) {
      read(step->part);
      read(step->whole);
    } else if (const auto* step = std::get_if<ExternStep>(&program.steps[index])) {
      for_each_operand(graph.nodes[step->node], [&](ValueId value) { read(graph.values[value].name); });
      for (ValueId value : graph.nodes[step->node].results)
        if (value != kNoValue) uses.made.push_back(graph.values[value].name);
      last_allocation = index;
    }
  }
  for (const GraphOutput& output : graph.outputs) {
    const std::string& name = graph.values[output.value].name;
    uses.used.insert(name);  // with the strides that the library gives it, as in eager mode
    last_use.erase(name);
  }
  for (const std::string& name : uses.made)
    if (const auto found = last_use.find(name);
        found != last_use.end() && found->second < last_allocation && uses.is_large(name))
      uses.dying[found->second].push_back(name);
  return uses;
}

}  // namespace kw
