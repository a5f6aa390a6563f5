#include "capture/reader.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "ir/spoken_name.hpp"
#include "ir/verifier.hpp"
#include "support/error.hpp"
#include "support/json_numbers.hpp"

namespace kw {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void broken(const std::string& what) {
  throw Error(ErrorKind::kInternal, "the captured graph breaks the worker protocol: " + what);
}

DType read_dtype(const std::string& name) {
  if (const auto dtype = parse_dtype(name)) return *dtype;
  throw Error(ErrorKind::kUser,
              ErrorText{.message = "the model computes with " + name + " tensors, which are not supported",
                        .where = "",
                        .source = "",
                        .hint = "Convert them to a supported type first, such as float32 or int64.",
                        .detail = "",
                        .code = "unsupported-dtype"});
}

double read_special(const std::string& name) {
  if (name == "inf") return std::numeric_limits<double>::infinity();
  if (name == "-inf") return -std::numeric_limits<double>::infinity();
  if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  broken("'" + name + "' is no number");
}

template <typename T>
T whole(const Json& value) {
  if (const auto number = whole_number<T>(value)) return *number;
  broken(value.dump() + " is no whole number, or too large a one");
}

template <typename T>
std::vector<T> wholes(const Json& values) {
  std::vector<T> numbers;
  numbers.reserve(values.size());
  for (const auto& value : values) numbers.push_back(whole<T>(value));
  return numbers;
}

Argument read_list(const Json& items) {
  bool all_bool = !items.empty(), any_float = false;
  for (const auto& item : items) {
    all_bool = all_bool && item.is_boolean();
    any_float = any_float || item.is_number_float() || item.is_object();
  }
  if (all_bool) {
    BoolList list;
    for (const auto& item : items) list.push_back(item.get<bool>());
    return list;
  }
  if (any_float) {
    FloatList list;
    for (const auto& item : items) list.push_back(item.is_object() ? read_special(item.at("f")) : item.get<double>());
    return list;
  }
  return wholes<int64_t>(items);
}

Argument read_argument(const Json& json) {
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number_integer()) return whole<int64_t>(json);
  if (!json.is_object() || json.size() != 1) broken("an argument is " + json.dump());
  const auto only = json.begin();
  const std::string& key = only.key();
  const Json& value = only.value();
  if (key == "v") return ValueRef{whole<ValueId>(value)};
  if (key == "vs") {
    ValueList list;
    for (const auto& item : value) list.ids.push_back(item.is_null() ? kNoValue : whole<ValueId>(item));
    return list;
  }
  if (key == "list") return read_list(value);
  if (key == "s") return value.get<std::string>();
  if (key == "f") return read_special(value);
  if (key == "dtype") return read_dtype(value);
  if (key == "device" || key == "layout" || key == "memory_format") return Keyword{key, value.get<std::string>()};
  broken("an argument is " + json.dump());
}

Value read_value(const Json& json) {
  Value value;
  value.name = json.at("name");
  value.type.dtype = read_dtype(json.at("dtype"));
  value.type.shape = wholes<int64_t>(json.at("shape"));
  value.type.strides = wholes<int64_t>(json.at("strides"));
  if (!is_countable(value.type.shape)) broken("value " + value.name + " has more elements than can be counted");
  if (value.type.strides.size() != value.type.shape.size())
    broken("value " + value.name + " has not as many strides as sizes");
  if (const auto offset = json.find("offset"); offset != json.end()) value.type.offset = whole<int64_t>(*offset);
  value.type.device = json.value("device", "cpu");
  return value;
}

Node read_node(const Json& json) {
  Node node;
  node.op = json.at("op");
  const Json& arguments = json.at("args");
  node.arguments.reserve(arguments.size());
  for (const auto& pair : arguments)
    node.arguments.push_back({pair.at(0).get<std::string>(), read_argument(pair.at(1))});
  node.results = wholes<ValueId>(json.at("results"));
  node.location = json.value("location", "");
  node.in_list = json.value("in_list", false);
  return node;
}

std::string optional_text(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? "" : found->get<std::string>();
}

std::string join_path(const Json& path) {
  std::string out;
  for (const auto& step : path) {
    if (!out.empty()) out += '.';
    out += step.is_string() ? step.get<std::string>() : step.dump();
  }
  return out;
}

InputKind read_input_kind(const std::string& kind) {
  if (kind == "user") return InputKind::kUser;
  if (kind == "parameter") return InputKind::kParameter;
  if (kind == "buffer") return InputKind::kBuffer;
  if (kind == "constant") return InputKind::kConstant;
  broken("an input is of kind '" + kind + "'");
}

GraphInput read_input(const Json& json) {
  GraphInput input;
  input.value = whole<ValueId>(json.at("value"));
  input.kind = read_input_kind(json.at("kind"));
  input.target = optional_text(json, "target");
  input.access = optional_text(json, "access");
  input.requires_grad = json.value("requires_grad", false);
  if (const auto path = json.find("path"); path != json.end() && !path->is_null()) input.target = join_path(*path);
  if (const auto data = json.find("data"); data != json.end() && !data->is_null()) input.data = data->dump();
  return input;
}

GraphOutput read_output(const Json& json) {
  const std::string kind = json.value("kind", "user");
  GraphOutput output;
  output.value = whole<ValueId>(json.at("value"));
  if (kind == "buffer_mutation") output.kind = OutputKind::kBufferMutation;
  else if (kind == "input_mutation") output.kind = OutputKind::kInputMutation;
  else if (kind != "user") broken("an output is of kind '" + kind + "'");
  output.target = optional_text(json, "target");
  return output;
}

std::string dump_if_there(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? "" : found->dump();
}

Graph read(const Json& json) {
  if (const auto version = json.find("version"); version == json.end() || whole_number<int>(*version) != 1)
    broken("its version is " + dump_if_there(json, "version") + ", not 1");
  Graph graph;
  graph.name = json.at("name");
  graph.training = json.value("training", true);
  graph.tf32_convolutions = json.value("tf32_convolutions", true);
  graph.tf32_products = json.value("tf32_products", false);
  const Json& values = json.at("values");
  graph.values.reserve(values.size());
  for (const auto& value : values) graph.values.push_back(read_value(value));
  for (const auto& input : json.at("inputs")) graph.inputs.push_back(read_input(input));
  const Json& nodes = json.at("nodes");
  graph.nodes.reserve(nodes.size());
  for (const auto& node : nodes) graph.nodes.push_back(read_node(node));
  for (const auto& output : json.at("outputs")) graph.outputs.push_back(read_output(output));
  graph.result_json = dump_if_there(json, "result");
  graph.call_json = dump_if_there(json, "user_inputs");
  Json source = json.value("source", Json::object());
  if (const auto signature = json.find("signature"); signature != json.end()) source["signature"] = *signature;
  if (const auto modes = json.find("modes"); modes != json.end()) source["modes"] = *modes;
  graph.source_json = source.empty() ? "" : source.dump();

  std::unordered_map<ValueId, std::string> parameter_names;
  if (const auto call = json.find("user_inputs"); call != json.end())
    for (const auto& input : *call)
      if (const auto value = input.find("value"); value != input.end() && value->is_number())
        parameter_names[whole<ValueId>(*value)] = optional_text(input, "name");
  for (auto& input : graph.inputs)
    if (input.kind == InputKind::kUser && input.access.empty()) input.access = parameter_names[input.value];
  return graph;
}

}  // namespace

Graph read_graph(const std::string& json_text) {
  Graph graph;
  try {
    graph = read(Json::parse(json_text));
  } catch (const nlohmann::json::exception& problem) { broken(problem.what()); }
  link_producers(graph);
  verify(graph, "capture");
  renumber(graph);
  speak_names(graph);
  return graph;
}

}  // namespace kw
