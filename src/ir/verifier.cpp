#include "ir/verifier.hpp"

#include <algorithm>
#include <cctype>
#include <unordered_set>

#include "ir/infer.hpp"
#include "ir/op_registry.hpp"
#include "ir/text.hpp"
#include "support/error.hpp"

namespace kw {
namespace {

struct Verifier {
  const Graph& graph;
  std::string_view after;
  std::vector<bool> defined = std::vector<bool>(graph.values.size(), false);

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kInternal,
                "the graph " + graph.name + " is malformed after " + std::string(after) + ": " + what);
  }

  [[noreturn]] void fail(const Node& node, const std::string& what) const {
    // Printing the node would read what may be broken about it.
    std::string name = node.op;
    if (!node.results.empty() && node.results[0] >= 0 && in_range(node.results[0]))
      name = "%" + graph.values[node.results[0]].name + " = " + name;
    fail(name + (node.location.empty() ? "" : " (" + node.location + ")") + ": " + what);
  }

  bool in_range(ValueId id) const { return id >= 0 && id < static_cast<ValueId>(graph.values.size()); }

  void check_type(const Value& value) const {
    const auto& type = value.type;
    if (type.shape.size() != type.strides.size())
      fail("%" + value.name + " has " + std::to_string(type.shape.size()) + " sizes and " +
           std::to_string(type.strides.size()) + " strides");
    for (const int64_t size : type.shape)
      if (size < 0) fail("%" + value.name + " has a negative size");
    for (const int64_t stride : type.strides)
      if (stride < 0) fail("%" + value.name + " has a negative stride");
    if (type.offset < 0) fail("%" + value.name + " has a negative offset");
    if (type.device.empty()) fail("%" + value.name + " is on no device");
  }

  static bool is_identifier(std::string_view name) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front()))) return false;
    for (const char c : name)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
    return true;
  }

  void check_values() const {
    std::unordered_set<std::string_view> names(2 * graph.values.size());
    for (const auto& value : graph.values) {
      if (!is_identifier(value.name)) fail("the name '" + value.name + "' is no identifier");
      if (!names.insert(value.name).second) fail("two values are named %" + value.name);
      check_type(value);
    }
  }

  void define(ValueId id, const std::string& by) {
    if (!in_range(id)) fail(by + " defines value " + std::to_string(id) + ", which does not exist");
    if (defined[id]) fail("%" + graph.values[id].name + " is defined twice");
    defined[id] = true;
  }

  void check_node(NodeId id) {
    const Node& node = graph.nodes[id];
    if (node.op.find('.') == std::string::npos) fail(node, "the operator has no namespace");
    for (auto argument = node.arguments.begin(); argument != node.arguments.end(); ++argument)
      for (auto earlier = node.arguments.begin(); earlier != argument; ++earlier)
        if (earlier->name == argument->name) fail(node, "the argument " + argument->name + " is given twice");
    for_each_operand(node, [&](ValueId operand) {
      if (!in_range(operand)) fail(node, "operand " + std::to_string(operand) + " does not exist");
      if (!defined[operand]) fail(node, "%" + graph.values[operand].name + " is used before it is defined");
    });
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (node.results[i] == kNoValue) continue;
      define(node.results[i], node.op);
      const Value& value = graph.values[node.results[i]];
      if (value.producer != id || value.result_index != static_cast<int>(i))
        fail(node, "%" + value.name + " names another producer");
    }
    check_types(node);
  }

  void check_types(const Node& node) const {
    const Inference inferred = infer(graph, node);
    if (!inferred.problem.empty()) fail(node, inferred.problem);
    for (size_t i = 0; i < std::min(inferred.results.size(), node.results.size()); ++i) {
      if (node.results[i] == kNoValue) continue;
      const TensorType& type = graph.type(node.results[i]);
      const auto& [shape, dtype] = inferred.results[i];
      if ((shape && *shape != type.shape) || (dtype && *dtype != type.dtype)) {
        TensorType expected{dtype.value_or(type.dtype), shape.value_or(type.shape), {}, 0, "cpu"};
        expected.strides = contiguous_strides(expected.shape);
        fail(node, "its result is " + print(type) + ", its operands give " + print(expected));
      }
    }
    check_place(node);
  }

  // A view's elements lie where its operand's do.
  void check_place(const Node& node) const {
    if (class_of(node.op) != OpClass::kView || node.results.empty() || node.results[0] == kNoValue) return;
    const auto view = infer_view(graph, node);
    const TensorType& type = graph.type(node.results[0]);
    if (view && type.elements() > 0 && view->offset != type.offset)
      fail(node, "its result is " + print(type) + ", its operand gives " + print(*view));
  }

  // A cheap node may stand in several groups, each of which computes it anew.
  void check_groups() const {
    for (const auto& group : graph.groups) {
      if (group.empty()) fail("a fusion group is empty");
      for (const NodeId id : group)
        if (id < 0 || id >= static_cast<NodeId>(graph.nodes.size()))
          fail("a fusion group names node " + std::to_string(id) + ", which does not exist");
      for (size_t i = 1; i < group.size(); ++i)
        if (group[i - 1] >= group[i]) fail(graph.nodes[group[i]], "it stands out of order in its fusion group");
    }
  }

  void run() {
    check_values();
    for (const auto& input : graph.inputs) {
      define(input.value, "an input");
      if (graph.values[input.value].producer != kNoNode)
        fail("the input %" + graph.values[input.value].name + " is also a node's result");
    }
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) check_node(id);
    for (const auto& output : graph.outputs)
      if (output.value != kNoValue && (!in_range(output.value) || !defined[output.value]))
        fail("an output returns value " + std::to_string(output.value) + ", which nothing defines");
    check_groups();
  }
};

}  // namespace

void verify(const Graph& graph, std::string_view after) { Verifier{graph, after}.run(); }

}  // namespace kw
