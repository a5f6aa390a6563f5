#include "ir/graph.hpp"

#include <utility>

namespace kw {

const Argument* Node::find(std::string_view name) const {
  for (const auto& argument : arguments)
    if (argument.name == name) return &argument.value;
  return nullptr;
}

ValueId Node::value(std::string_view name) const {
  const Argument* argument = find(name);
  const auto* reference = argument ? std::get_if<ValueRef>(argument) : nullptr;
  return reference ? reference->id : kNoValue;
}

int64_t Node::integer(std::string_view name, int64_t fallback) const {
  const Argument* argument = find(name);
  if (!argument) return fallback;
  if (const auto* integer = std::get_if<int64_t>(argument)) return *integer;
  if (const auto* boolean = std::get_if<bool>(argument)) return *boolean;
  if (const auto* list = std::get_if<IntList>(argument); list && list->size() == 1) return list->front();
  return fallback;
}

double Node::number(std::string_view name, double fallback) const {
  const Argument* argument = find(name);
  if (!argument) return fallback;
  if (const auto* real = std::get_if<double>(argument)) return *real;
  if (const auto* integer = std::get_if<int64_t>(argument)) return static_cast<double>(*integer);
  if (const auto* boolean = std::get_if<bool>(argument)) return *boolean;
  return fallback;
}

bool Node::boolean(std::string_view name, bool fallback) const {
  const Argument* argument = find(name);
  if (!argument) return fallback;
  if (const auto* boolean = std::get_if<bool>(argument)) return *boolean;
  if (const auto* integer = std::get_if<int64_t>(argument)) return *integer != 0;
  return fallback;
}

IntList Node::integers(std::string_view name, IntList fallback) const {
  const Argument* argument = find(name);
  if (!argument) return fallback;
  if (const auto* list = std::get_if<IntList>(argument)) return *list;
  if (const auto* integer = std::get_if<int64_t>(argument)) return {*integer};
  // An empty list carries no element type of its own.
  if (const auto* list = std::get_if<FloatList>(argument); list && list->empty()) return {};
  if (const auto* list = std::get_if<BoolList>(argument); list && list->empty()) return {};
  return fallback;
}

std::string Node::text(std::string_view name, std::string fallback) const {
  const Argument* argument = find(name);
  if (!argument) return fallback;
  if (const auto* text = std::get_if<std::string>(argument)) return *text;
  if (const auto* keyword = std::get_if<Keyword>(argument)) return keyword->name;
  if (const auto* dtype = std::get_if<DType>(argument)) return std::string(name_of(*dtype));
  return fallback;
}

void Node::set(std::string name, Argument value) {
  for (auto& argument : arguments)
    if (argument.name == name) {
      argument.value = std::move(value);
      return;
    }
  arguments.push_back({std::move(name), std::move(value)});
}

std::vector<std::vector<NodeId>> Graph::users() const {
  std::vector<std::vector<NodeId>> users(values.size());
  for (NodeId id = 0; id < static_cast<NodeId>(nodes.size()); ++id)
    for_each_operand(nodes[id], [&](ValueId operand) {
      auto& readers = users[operand];
      if (readers.empty() || readers.back() != id) readers.push_back(id);
    });
  return users;
}

std::vector<bool> Graph::is_output() const {
  std::vector<bool> flags(values.size(), false);
  for (const auto& output : outputs)
    if (output.value != kNoValue) flags[output.value] = true;
  return flags;
}

void link_producers(Graph& graph) {
  for (auto& value : graph.values) {
    value.producer = kNoNode;
    value.result_index = 0;
  }
  const auto count = static_cast<ValueId>(graph.values.size());
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    const auto& results = graph.nodes[id].results;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i] < 0 || results[i] >= count) continue;  // the verifier's to report
      graph.values[results[i]].producer = id;
      graph.values[results[i]].result_index = static_cast<int>(i);
    }
  }
}

void renumber(Graph& graph) {
  std::vector<ValueId> renamed(graph.values.size(), kNoValue);
  std::vector<Value> values;
  values.reserve(graph.values.size());
  const auto define = [&](ValueId& id) {
    if (id == kNoValue) return;
    if (renamed[id] == kNoValue) {
      renamed[id] = static_cast<ValueId>(values.size());
      values.push_back(std::move(graph.values[id]));
    }
    id = renamed[id];
  };
  for (auto& input : graph.inputs) define(input.value);
  for (auto& node : graph.nodes) {
    for_each_operand(node, [&](ValueId& id) { id = renamed[id]; });
    for (auto& id : node.results) define(id);
  }
  for (auto& output : graph.outputs)
    if (output.value != kNoValue) output.value = renamed[output.value];
  graph.values = std::move(values);
  link_producers(graph);
}

}  // namespace kw
