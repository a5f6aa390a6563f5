#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "capture/reader.hpp"
#include "ir/spoken_name.hpp"
#include "ir/text.hpp"
#include "support/error.hpp"

using namespace kw;

namespace {

constexpr const char* kSmall = R"({
  "version": 1, "name": "Small", "training": false,
  "values": [
    {"name": "unused", "dtype": "f32", "shape": [], "strides": [], "offset": 0, "device": "cpu"},
    {"name": "w", "dtype": "f32", "shape": [8], "strides": [1], "offset": 0, "device": "cpu"},
    {"name": "x", "dtype": "f32", "shape": [4, 8], "strides": [1, 4], "offset": 2, "device": "cpu"},
    {"name": "add", "dtype": "f32", "shape": [4, 8], "strides": [1, 4], "offset": 0, "device": "cpu"},
    {"name": "clamp", "dtype": "f32", "shape": [4, 8], "strides": [1, 4], "offset": 0, "device": "cpu"},
    {"name": "cat", "dtype": "f32", "shape": [8, 8], "strides": [8, 1], "offset": 0, "device": "cpu"}],
  "inputs": [
    {"value": 1, "kind": "parameter", "target": "fc.weight", "access": "self.fc.weight", "requires_grad": true, "path": null},
    {"value": 2, "kind": "user", "target": null, "access": null, "requires_grad": false, "path": ["args", 0, "key"]}],
  "nodes": [
    {"op": "aten.add.Tensor", "args": [["self", {"v": 2}], ["other", {"v": 1}], ["alpha", 2]], "results": [3], "location": "model.py:17"},
    {"op": "aten.clamp.default", "args": [["self", {"v": 3}], ["min", null], ["max", {"f": "inf"}]], "results": [4], "location": ""},
    {"op": "aten.cat.default", "args": [["tensors", {"vs": [3, 4]}]], "results": [5], "location": "model.py:18"}],
  "outputs": [{"value": 5, "kind": "user", "target": ""}, {"value": 3, "kind": "buffer_mutation", "target": "running"}],
  "result": {"tuple": [{"output": 0}, {"constant": 3}]},
  "user_inputs": [{"path": ["args", 0, "key"], "name": "x", "value": 2}],
  "source": {"path": "small.py", "class": "Model"}})";

}  // namespace

TEST(ReadGraph, KeepsEverything) {
  const Graph graph = read_graph(kSmall);
  EXPECT_EQ(print(graph), R"(graph Small eval {
  input %w : f32[8] parameter "fc.weight" access "self.fc.weight" grad
  input %x : f32[4, 8] strides [1, 4] offset 2 user args.0.key access "x"
  %add = aten.add.Tensor(self=%x, other=%w, alpha=2) : f32[4, 8] strides [1, 4]  # model.py:17
  %clamp = aten.clamp.default(self=%add, min=None, max=inf) : f32[4, 8] strides [1, 4]
  %cat = aten.cat.default(tensors=(%add, %clamp)) : f32[8, 8]  # model.py:18
  return %cat, buffer "running" %add
  result {"tuple":[{"output":0},{"constant":3}]}
  call [{"path":["args",0,"key"],"name":"x","value":2}]
  source {"path":"small.py","class":"Model"}
}
)");
}

TEST(ReadGraph, CallsValuesWhatPeopleCallTheOperator) {
  Graph graph = parse_graph(R"(graph Names training {
  input %softmax : f32[4, 8] user args.0 access "softmax"
  %_softmax = aten._softmax.default(self=%softmax, dim=1, half_to_float=false) : f32[4, 8]
  %native_dropout_2, %native_dropout_2_1 = aten.native_dropout.default(input=%_softmax, p=0.1, train=true) : f32[4, 8], b1[4, 8]
  return %native_dropout_2
})");
  speak_names(graph);
  std::vector<std::string> names;
  for (const Value& value : graph.values) names.push_back(value.name);
  EXPECT_EQ(names, (std::vector<std::string>{"softmax", "softmax_1", "dropout_2", "dropout_2_1"}));
}

TEST(ReadGraph, IsTheTextFormsOrigin) {
  const Graph graph = read_graph(kSmall);
  EXPECT_EQ(parse_graph(print(graph)), graph);
}

TEST(ReadGraph, RefusesAnUnknownElementTypeAsTheUsersError) {
  std::string text = kSmall;
  text.replace(text.find("\"f32\""), 5, "\"u16\"");
  try {
    read_graph(text);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_NE(error.text().message.find("u16"), std::string::npos);
  }
}

TEST(ReadGraph, RefusesBrokenText) {
  for (const std::string text : {"", "{", "[]", R"({"version": 2})", R"({"version": 1, "name": "A", "values": []})"})
    EXPECT_THROW(read_graph(text), Error) << text;
  std::string undefined = kSmall;
  undefined.replace(undefined.find("{\"v\": 1}"), 8, "{\"v\": 0}");
  EXPECT_THROW(read_graph(undefined), Error);
}
