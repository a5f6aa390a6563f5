#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include "ir/text.hpp"
#include "support/text.hpp"

namespace kw {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') (out += '\\') += c;
    else if (c == '\n') out += "\\n";
    else out += c;
  }
  return out += '"';
}

bool is_path(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
}

struct Printer {
  const Graph& graph;
  std::string main_device = graph.values.empty() ? "cpu" : graph.values.front().type.device;
  std::string out = {};

  std::string value(ValueId id) const { return id == kNoValue ? "None" : "%" + graph.values[id].name; }

  template <typename Items, typename Format>
  static std::string list(char open, const Items& items, char close, Format&& format) {
    std::string text(1, open);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) text += ", ";
      text += format(items[i]);
    }
    return text += close;
  }

  static std::string integers(const IntList& items) {
    return list('[', items, ']', [](int64_t item) { return std::to_string(item); });
  }

  std::string argument(const Argument& argument) const {
    struct {
      const Printer& printer;
      std::string operator()(const None&) const { return "None"; }
      std::string operator()(const ValueRef& reference) const { return printer.value(reference.id); }
      std::string operator()(const ValueList& values) const {
        return list('(', values.ids, ')', [&](ValueId id) { return printer.value(id); });
      }
      std::string operator()(bool flag) const { return flag ? "true" : "false"; }
      std::string operator()(int64_t number) const { return std::to_string(number); }
      std::string operator()(double number) const { return format_double(number); }
      std::string operator()(const std::string& text) const { return quoted(text); }
      std::string operator()(const IntList& items) const { return integers(items); }
      // An empty list shows no element type: the prefix keeps it.
      std::string operator()(const FloatList& items) const {
        return (items.empty() ? "float" : "") + list('[', items, ']', format_double);
      }
      std::string operator()(const BoolList& items) const {
        return (items.empty() ? "bool" : "") +
               list('[', items, ']', [](bool item) { return std::string(item ? "true" : "false"); });
      }
      std::string operator()(DType dtype) const { return std::string(name_of(dtype)); }
      std::string operator()(const Keyword& keyword) const { return keyword.kind + ":" + keyword.name; }
    } format{*this};
    return std::visit(format, argument);
  }

  static std::string type(const TensorType& type, std::string_view main_device) {
    std::string text(name_of(type.dtype));
    text += integers(type.shape);
    if (type.strides != contiguous_strides(type.shape)) text += " strides " + integers(type.strides);
    if (type.offset != 0) text += " offset " + std::to_string(type.offset);
    if (type.device != main_device) text += " on " + type.device;
    return text;
  }

  std::string node(const Node& node) const {
    std::string text = node.results.empty() ? "" : [&] {
      std::string names;
      for (const ValueId id : node.results) names += (names.empty() ? "" : ", ") + (id == kNoValue ? "_" : value(id));
      return names + (node.in_list ? ", = " : " = ");
    }();
    text += node.op;
    text += list('(', node.arguments, ')',
                 [&](const NamedArgument& named) { return named.name + "=" + argument(named.value); });
    bool first = true;
    for (const ValueId id : node.results) {
      if (id == kNoValue) continue;
      text += (first ? " : " : ", ") + type(graph.type(id), main_device);
      first = false;
    }
    if (!node.location.empty()) text += "  # " + node.location;
    return text;
  }

  std::string input(const GraphInput& input) const {
    static constexpr std::string_view kinds[] = {"user", "parameter", "buffer", "constant"};
    std::string text = fmt::format("input {} : {} {}", value(input.value), type(graph.type(input.value), main_device),
                                   kinds[static_cast<int>(input.kind)]);
    if (!input.target.empty())
      text += " " + (input.kind == InputKind::kUser && is_path(input.target) ? input.target : quoted(input.target));
    if (!input.access.empty()) text += " access " + quoted(input.access);
    if (input.requires_grad) text += " grad";
    if (!input.data.empty()) text += " data " + quoted(input.data);
    return text;
  }

  std::string output(const GraphOutput& output) const {
    switch (output.kind) {
      case OutputKind::kBufferMutation: return fmt::format("buffer {} {}", quoted(output.target), value(output.value));
      case OutputKind::kInputMutation: return fmt::format("input {} {}", quoted(output.target), value(output.value));
      case OutputKind::kUser: break;
    }
    return value(output.value) + (output.target.empty() ? "" : " as " + quoted(output.target));
  }

  void line(std::string_view text) { (out += "  ").append(text) += '\n'; }

  void print_graph() {
    out = "graph " + (is_path(graph.name) ? graph.name : quoted(graph.name)) + (graph.training ? " training" : " eval");
    out += (main_device == "cpu" ? "" : " on " + main_device) + (graph.tf32_convolutions ? "" : " without tf32") +
           (graph.tf32_products ? " with tf32 products" : "") + " {\n";
    for (const auto& item : graph.inputs) line(input(item));
    for (const auto& item : graph.nodes) line(node(item));
    if (!graph.outputs.empty()) {
      std::string returned;
      for (const auto& item : graph.outputs) returned += (returned.empty() ? "return " : ", ") + output(item);
      line(returned);
    }
    if (!graph.result_json.empty()) line("result " + graph.result_json);
    if (!graph.call_json.empty()) line("call " + graph.call_json);
    if (!graph.source_json.empty()) line("source " + graph.source_json);
    for (const auto& group : graph.groups) {
      std::string members = "group";
      for (const NodeId id : group) {
        const auto& results = graph.nodes[id].results;
        const auto named = std::find_if(results.begin(), results.end(),
                                        [](ValueId result) { return result != kNoValue; });
        members += (members == "group" ? " " : ", ") +
                   (named == results.end() ? "@" + std::to_string(id) : value(*named));
      }
      line(members);
    }
    out += "}\n";
  }
};

}  // namespace

std::string print(const TensorType& type) { return Printer::type(type, "cpu"); }
std::string print(const Graph& graph, const Node& node) { return Printer{graph}.node(node); }

std::string print(const Graph& graph) {
  Printer printer{graph};
  printer.print_graph();
  return std::move(printer.out);
}

}  // namespace kw
