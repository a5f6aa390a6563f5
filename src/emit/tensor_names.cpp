#include <cctype>

#include "emit/forward_text.hpp"
#include "emit/python_text.hpp"
#include "support/error.hpp"

namespace kw {

TensorNames::TensorNames(const Graph& graph, const Program& program, const std::set<std::string>& reserved)
    : graph_(graph) {
  std::set<std::string> taken = reserved;
  const auto add = [&](const std::string& name, const std::string& wanted) {
    if (names_.contains(name)) return;
    std::string candidate = wanted;
    for (char& c : candidate)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') c = '_';
    if (!python::is_identifier(candidate)) candidate = "t_" + candidate;
    while (!taken.insert(candidate).second) candidate += "_";
    names_[name] = candidate;
  };
  for (const GraphInput& input : graph.inputs) add(graph.values[input.value].name, graph.values[input.value].name);
  for (const Value& value : graph.values) add(value.name, value.name);
  for (const Step& step : program.steps) {
    if (const auto* allocate = std::get_if<AllocateStep>(&step); allocate && !allocate->name.empty())
      add(allocate->name, allocate->name);
    const auto* tiles = std::get_if<TileStep>(&step);
    if (tiles == nullptr || !tiles->repetition) continue;
    add(counter(tiles->repetition->size), tiles->repetition->size);
    for (size_t at = 0; at < tiles->tensors.size(); ++at)
      if (tiles->offsets[at] != 0)
        add(part(tiles->tensors[at], tiles->offsets[at]),
            tiles->tensors[at] + "_" + std::to_string(tiles->offsets[at]));
  }
}

const std::string& TensorNames::of(const std::string& name) const {
  const auto found = names_.find(name);
  KW_ASSERT(found != names_.end(), "a step reads " + name + ", which no step or graph value is called");
  return found->second;
}

const std::string& TensorNames::of(ValueId value) const { return of(graph_.values[value].name); }

}  // namespace kw
