// Graph: a functional SSA graph of tensor operations, as captured from PyTorch.
// Operations keep their ATen names ("aten.add.Tensor") and their schema's argument names.
// Text form (see text.hpp):
//   graph TransformerMlp training {
//     input %x : f32[16, 64] user args.0
//     input %weight : f32[64] parameter "norm.weight"
//     %add = aten.add.Tensor(self=%x, other=1.0) : f32[16, 64]  # model.py:17
//     return %add
//   }
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "ir/types.hpp"

namespace kw {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;
inline constexpr NodeId kNoNode = -1;

struct None {
  bool operator==(const None&) const = default;
};
struct ValueRef {
  ValueId id = kNoValue;
  bool operator==(const ValueRef&) const = default;
};
struct ValueList {
  std::vector<ValueId> ids;
  bool operator==(const ValueList&) const = default;
};  // kNoValue stands for None
struct Keyword {
  std::string kind, name;
  bool operator==(const Keyword&) const = default;
};  // device, layout, memory_format
using IntList = std::vector<int64_t>;
using FloatList = std::vector<double>;
using BoolList = std::vector<bool>;
using Argument = std::variant<None, ValueRef, ValueList, bool, int64_t, double, std::string, IntList, FloatList,
                              BoolList, DType, Keyword>;

struct NamedArgument {
  std::string name;
  Argument value;
  bool operator==(const NamedArgument&) const = default;
};

struct Value {
  std::string name;  // unique in the graph, a Python identifier
  TensorType type;
  NodeId producer = kNoNode;  // kNoNode: a graph input
  int result_index = 0;
  bool operator==(const Value&) const = default;
};

struct Node {
  std::string op;                        // "aten.add.Tensor"
  std::vector<NamedArgument> arguments;  // in schema order, defaults left out
  std::vector<ValueId> results;          // kNoValue where the op returns no tensor
  std::string location;                  // "model.py:17", or empty
  bool in_list = false;                  // its one result comes in a list

  const Argument* find(std::string_view name) const;  // nullptr when left out
  ValueId value(std::string_view name) const;         // kNoValue when left out or None
  int64_t integer(std::string_view name, int64_t fallback) const;
  double number(std::string_view name, double fallback) const;  // integers and booleans widen
  bool boolean(std::string_view name, bool fallback) const;
  IntList integers(std::string_view name, IntList fallback = {}) const;  // a single integer counts as a list of one
  std::string text(std::string_view name, std::string fallback = "") const;
  void set(std::string name, Argument value);
  bool operator==(const Node&) const = default;
};

// Calls visit(ValueId&) for each tensor operand, in order, None left out.
template <typename NodeType, typename Visit>
void for_each_operand(NodeType& node, Visit&& visit) {
  for (auto& argument : node.arguments) {
    if (auto* one = std::get_if<ValueRef>(&argument.value)) visit(one->id);
    if (auto* list = std::get_if<ValueList>(&argument.value))
      for (auto& id : list->ids)
        if (id != kNoValue) visit(id);
  }
}

enum class InputKind { kUser, kParameter, kBuffer, kConstant };
struct GraphInput {
  ValueId value = kNoValue;
  InputKind kind = InputKind::kUser;
  std::string target;  // "fc1.weight"; for user inputs the path, "args.0"
  std::string access;  // Python expression over `self` that yields it; user inputs: the name in forward's signature
  bool requires_grad = false;
  std::string data;  // JSON nested lists of a small constant without `access`, else empty
  bool operator==(const GraphInput&) const = default;
};

enum class OutputKind { kUser, kBufferMutation, kInputMutation };
struct GraphOutput {
  ValueId value = kNoValue;
  OutputKind kind = OutputKind::kUser;
  std::string target;
  bool operator==(const GraphOutput&) const = default;
};

struct Graph {
  std::string name;
  bool training = true;
  // PyTorch may round what enters convolutions, or matrix products, in f32 on a GPU to TF32 (its own defaults).
  bool tf32_convolutions = true, tf32_products = false;
  std::vector<Value> values;
  std::vector<Node> nodes;  // topological order
  std::vector<GraphInput> inputs;
  std::vector<GraphOutput> outputs;
  std::string result_json;                  // shape of forward's result over `outputs`, as captured
  std::string call_json;                    // description of the user's call, as captured ("user_inputs")
  std::string source_json;                  // {"path", "class"}
  std::vector<std::vector<NodeId>> groups;  // fusion groups in order of execution; empty until the fusion pass has run

  const TensorType& type(ValueId id) const { return values[id].type; }
  std::vector<std::vector<NodeId>> users() const;  // per value: the nodes that read it, ascending, each once
  std::vector<bool> is_output() const;             // per value
  bool operator==(const Graph&) const = default;
};

// Sets every value's producer and result_index from the nodes.
void link_producers(Graph& graph);

// Numbers the values in order of appearance (inputs, then results) and drops those that nothing defines. Every pass and
// the capture leave graphs numbered so, which makes parse_graph(print(graph)) == graph.
void renumber(Graph& graph);

}  // namespace kw
