#include "ir/spoken_name.hpp"

#include <set>

#include "ir/op_registry.hpp"

namespace kw {

namespace {

std::string unique_name(std::string name, std::set<std::string>& taken) {
  const std::string stem = name;
  for (int number = 1; !taken.insert(name).second; ++number) name = stem + "_" + std::to_string(number);
  return name;
}

}  // namespace

std::string spoken_name(std::string_view base) {
  if (const std::string_view spoken = op_info(base).spoken; !spoken.empty()) return std::string(spoken);
  while (base.starts_with('_')) base.remove_prefix(1);
  while (base.ends_with('_')) base.remove_suffix(1);
  return std::string(base);
}

void speak_names(Graph& graph) {
  std::set<std::string> taken;
  for (const Value& value : graph.values) taken.insert(value.name);
  for (const Node& node : graph.nodes) {
    const std::string_view base = base_name(node.op);
    const std::string spoken = spoken_name(base);
    if (spoken == base || spoken.empty()) continue;
    for (const ValueId result : node.results) {
      if (result < 0) continue;
      std::string& name = graph.values[static_cast<size_t>(result)].name;
      if (!name.starts_with(base)) continue;
      std::string rest = name.substr(base.size());
      if (rest.ends_with("_out")) rest.resize(rest.size() - 4);  // of a schema's returns: running_mean_out
      name = unique_name(spoken + rest, taken);
    }
  }
}

}  // namespace kw
