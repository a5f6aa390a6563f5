// ModelNew: forward's signature, what it checks before it lets the kernels run, mutations and the result.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "emit/forward_text.hpp"
#include "emit/graph_class.hpp"
#include "emit/python_text.hpp"
#include "emit/shared_memory.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {
namespace {

using Json = nlohmann::ordered_json;

Json parse(const std::string& text, const char* empty) { return Json::parse(text.empty() ? empty : text); }

std::string path_text(const Json& path) {
  std::string out;
  for (const Json& step : path)
    out += (out.empty() ? "" : ".") + (step.is_string() ? step.get<std::string>() : step.dump());
  return out;
}

// How forward takes its call apart: its parameter list, the expression for each tensor of the call, what of the rest
// stands in the way, and how the call is handed on to the original.
struct CallText {
  std::string parameters;                      // "x, mask=None, *args, **kwargs"
  std::string passed_on;                       // "x, mask, *args, **kwargs"
  std::map<std::string, std::string> tensors;  // user input's path, "args.0" → "x"
  std::vector<std::string> obstacles;          // "mask is not None"
  std::set<std::string> names;                 // of all parameters
};

class CallWriter {
 public:
  CallWriter(const Graph& graph) : entries_(parse(graph.call_json, "[]")), signature_(parse(graph.source_json, "{}")) {
    signature_ = signature_.is_object() && signature_.contains("signature") ? signature_["signature"] : Json::array();
    if (entries_.empty())  // graphs written by hand
      for (const GraphInput& input : graph.inputs)
        if (input.kind == InputKind::kUser) {
          Json path = Json::array({"args", static_cast<int64_t>(entries_.size())});
          entries_.push_back({{"path", path},
                              {"name", input.access.empty() ? graph.values[input.value].name : input.access},
                              {"value", input.value}});
          targets_[path_text(path)] = input.target;
        }
  }

  CallText run() {
    if (!from_signature()) from_call();
    text_.names = own_;
    text_.names.insert({varargs_, varkw_});
    for (const Json& entry : entries_) describe(entry);
    for (const auto& [container, children] : children_)
      text_.obstacles.push_back(fmt::format("len({}) != {}", container, children.size()));
    text_.obstacles.insert(text_.obstacles.end(), constants_.begin(), constants_.end());
    return std::move(text_);
  }

 private:
  // The original's own parameter list, when every default in it can be written down.
  bool from_signature() {
    if (signature_.empty()) return false;
    std::vector<std::string> parameters, passed;
    std::set<std::string> given;
    for (const Json& entry : entries_) given.insert(entry.at("name").get<std::string>());
    bool keyword_only = false;
    int64_t position = 0;
    for (const Json& item : signature_) {
      const std::string name = item.at("name"), kind = item.at("kind");
      if (item.contains("default") && !python::has_literal(item["default"])) return false;
      const std::string text = item.contains("default") ? fmt::format("{}={}", name, python::literal(item["default"]))
                                                        : name;
      if (kind == "varargs") {
        keyword_only = true;
        parameters.push_back("*" + name);
        passed.push_back("*" + name);
        varargs_ = name;
        varargs_from_ = position;
      } else if (kind == "varkw") {
        parameters.push_back("**" + name);
        passed.push_back("**" + name);
        varkw_ = name;
      } else {
        if (kind == "keyword" && !keyword_only) {
          keyword_only = true;
          parameters.push_back("*");
        }
        parameters.push_back(text);
        passed.push_back(kind == "keyword" ? name + "=" + name : name);
        own_.insert(name);
        if (kind != "keyword") by_position_[position++] = name;
        if (!given.contains(name) && item.contains("default"))
          text_.obstacles.push_back(differs(name, item["default"]));
      }
    }
    text_.parameters = join(parameters, ", ");
    text_.passed_on = join(passed, ", ");
    close_overflow();
    return true;
  }

  // Names for what was passed; anything more is not what the kernels were built for.
  void from_call() {
    std::vector<std::string> parameters;
    for (const Json& entry : entries_) {
      const Json& path = entry.at("path");
      if (path.at(0) != "args") continue;
      const int64_t position = path.at(1);
      if (by_position_.contains(position)) continue;
      const std::string name = entry.at("name");
      by_position_[position] = python::is_identifier(name) ? name : fmt::format("argument_{}", position);
      own_.insert(by_position_[position]);
      parameters.push_back(by_position_[position]);
    }
    varargs_ = "args";
    varargs_from_ = static_cast<int64_t>(parameters.size());
    varkw_ = "kwargs";
    parameters.insert(parameters.end(), {"*args", "**kwargs"});
    text_.parameters = text_.passed_on = join(parameters, ", ");
    close_overflow();
  }

  void close_overflow() {
    std::set<std::string> extra;
    int64_t overflow = 0;
    for (const Json& entry : entries_) {
      const Json& path = entry.at("path");
      if (path.at(0) == "args") overflow = std::max(overflow, path.at(1).get<int64_t>() + 1 - varargs_from_);
      else if (!own_.contains(path.at(1).get<std::string>())) extra.insert(path.at(1).get<std::string>());
    }
    if (!varargs_.empty())
      text_.obstacles.push_back(overflow > 0 ? fmt::format("len({}) != {}", varargs_, overflow) : varargs_);
    if (!varkw_.empty()) {
      std::vector<std::string> names;
      for (const std::string& name : extra) names.push_back(python::quoted(name));
      text_.obstacles.push_back(names.empty() ? varkw_ : fmt::format("{}.keys() != {{{}}}", varkw_, join(names, ", ")));
    }
  }

  std::string root(const Json& path) const {
    if (path.at(0) == "args") {
      const int64_t position = path.at(1);
      if (const auto found = by_position_.find(position); found != by_position_.end()) return found->second;
      return fmt::format("{}[{}]", varargs_, position - varargs_from_);
    }
    const std::string name = path.at(1);
    return own_.contains(name) ? name : fmt::format("{}[{}]", varkw_, python::quoted(name));
  }

  void describe(const Json& entry) {
    const Json& path = entry.at("path");
    std::string expression = root(path);
    for (size_t step = 2; step < path.size(); ++step) {
      children_[expression].insert(path[step].dump());
      expression += "[" + path[step].dump() + "]";
    }
    if (entry.contains("constant")) {
      constants_.push_back(
          python::has_literal(entry["constant"])
              ? differs(expression, entry["constant"])
              : fmt::format("repr({}) != {}", expression, entry["constant"].value("repr", Json("")).dump()));
      return;
    }
    const std::string key = path_text(path);
    text_.tensors[targets_.contains(key) ? targets_[key] : key] = expression;
  }

  static std::string differs(const std::string& expression, const Json& constant) {
    const std::string value = python::literal(constant);
    return expression + (constant.is_null() || constant.is_boolean() ? " is not " : " != ") + value;
  }

  Json entries_, signature_;
  CallText text_;
  std::map<std::string, std::string> targets_;
  std::map<int64_t, std::string> by_position_;
  std::set<std::string> own_;
  std::map<std::string, std::set<std::string>> children_;  // of each list, tuple and dict in the call, shorter
                                                           // expressions first
  std::vector<std::string> constants_;
  std::string varargs_, varkw_;
  int64_t varargs_from_ = 0;
};

class ClassWriter {
 public:
  ClassWriter(const Graph& graph, const Program& program, const TargetPrinter& target, bool wraps_module,
              const std::optional<KeptWeights>& kept)
      : graph_(graph),
        program_(program),
        target_(target),
        wraps_(wraps_module),
        kept_(kept),
        module_(wraps_module ? "self.module" : "self"),
        inputs_(used_inputs(graph, program)),
        returned_(returned_outputs(graph, program, target)),
        memory_(shared_memory_check(graph, inputs_)),
        call_(CallWriter(graph).run()),
        graph_device_(device_of(graph)) {}

  std::string run() {
    return constants() + expected_table() + memory_.definitions + why_not() + "\n\n" +
           (kept_ ? kept_class_text(kept_sources()) : "") +
           (program_.graphs ? graph_class_text(inputs_, kept_ ? kept_->made.size() : 0, returned_.size()) : "") +
           model_class();
  }

 private:
  std::vector<size_t> kept_sources() const {
    std::vector<size_t> places;
    for (const std::string& name : kept_->sources)
      for (size_t place = 0; place < inputs_.size(); ++place)
        if (graph_.values[inputs_[place].value].name == name) places.push_back(place);
    return places;
  }

  // Tensors that forward makes rather than holds, one of each a device.
  std::string constants() {
    std::string out;
    for (const GraphInput& input : inputs_) {
      if (input.kind != InputKind::kConstant || !input.access.empty()) continue;
      const Value& value = graph_.values[input.value];
      const DType dtype = value.type.dtype;
      // Complex elements travel as pairs.
      const bool complex = dtype == DType::c64 || dtype == DType::c128;
      const std::string made = fmt::format("torch.tensor({}, dtype={}, device=device)", constant_data(input.data),
                                           python::dtype(!complex              ? dtype
                                                         : dtype == DType::c64 ? DType::f32
                                                                               : DType::f64));
      out += fmt::format("@functools.cache\ndef constant_{}(device):\n    return {}\n\n\n", value.name,
                         complex ? "torch.view_as_complex(" + made + ")" : made);
    }
    return out;
  }

  static std::string constant_data(const std::string& data) {
    const auto text = [](const auto& self, const Json& item) -> std::string {
      if (item.is_string()) return fmt::format("float({})", item.dump());
      if (item.is_object() || !item.is_array()) return python::literal(item);
      std::vector<std::string> parts;
      for (const Json& one : item) parts.push_back(self(self, one));
      return "[" + join(parts, ", ") + "]";
    };
    return text(text, Json::parse(data));
  }

  std::string device(const TensorType& type) const {
    return type.device == graph_device_ ? "DEVICE" : python::quoted(type.device);
  }

  std::string expected_table() const {
    std::string out =
        "# What kernel_forward takes, in the order of its parameters: name, shape, strides, dtype, device.\nEXPECTED = "
        "(\n";
    for (const GraphInput& input : inputs_) {
      const TensorType& type = graph_.type(input.value);
      out += fmt::format("    ({}, {}, {}, {}, {}),\n", python::quoted(label(input)), python::tuple(type.shape),
                         python::tuple(type.strides), python::dtype(type.dtype), device(type));
    }
    return out + ")\n\n\n";
  }

  std::string label(const GraphInput& input) const {
    if (input.kind != InputKind::kUser) return input.target;
    const auto found = call_.tensors.find(input.target);
    return found == call_.tensors.end() ? input.target : found->second;
  }

  std::string why_not() const {
    return "def why_not(module, tensors):\n    \"\"\"Why kernel_forward cannot run on these tensors, and what to do "
           "about it; None where it can.\"\"\"\n" +
           mode_check() +
           R"py(    for tensor, (name, shape, strides, dtype, device) in zip(tensors, EXPECTED):
        if not isinstance(tensor, torch.Tensor) or tensor.shape != shape:
            return f"{name} is not a tensor of shape {shape}; pass one, or make kernels for the other shape"
        if tensor.dtype is not dtype or not (tensor.is_cpu if device == "cpu" else tensor.is_cuda):
            return f"{name} is not {dtype} on {device}; convert it, or make kernels for what it is"
        if tensor.stride() != strides:
            return f"{name} does not have the strides {strides}; copy it into a tensor that has, or make kernels for its own"
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "gradients are wanted, which the kernels do not compute; call it under torch.no_grad()"
    if torch.is_autocast_enabled(DEVICE):
        return "autocast is on; call it under torch.autocast(..., enabled=False)"
)py" + requirements() +
           R"py(    return None


@functools.cache
def warn_once(reason):
    """Warns at the line that called the module: the nearest that is neither this file's nor PyTorch's."""
    level, frame = 1, sys._getframe()
    while frame.f_back and (frame.f_globals is globals() or frame.f_globals.get("__name__", "").startswith("torch.")):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"ModelNew runs the original forward: {reason}.", stacklevel=level)
)py";
  }

  // Forward may read whether modules are in training mode; graphs that do not say of which are held to the mode of the
  // whole.
  std::string mode_check() const {
    const Json source = parse(graph_.source_json, "{}");
    Json modes = Json::array({Json::array({"self", graph_.training})});
    if (source.is_object() && source.contains("modes")) modes = source["modes"];
    std::vector<std::string> training, evaluating;
    for (const Json& mode : modes) {
      const std::string module = python::rename_word(mode.at(0).get<std::string>(), "self", "module");
      (mode.at(1).get<bool>() ? training : evaluating).push_back(module + ".training");
    }
    return mode_check(training, true) + mode_check(evaluating, false);
  }

  static std::string mode_check(const std::vector<std::string>& flags, bool training) {
    if (flags.empty()) return "";
    std::string condition = fmt::format("    if {}{}:\n", training ? "not " : "", flags[0]);
    if (flags.size() > 1)
      condition = python::indent(
          python::wrapped_call(fmt::format("if {} in (", training ? "False" : "True"), flags, "):"), 1);
    const std::string_view made = training ? "training" : "evaluation", other = training ? "evaluation" : "training";
    return condition +
           fmt::format("        return \"it was made for {} mode; call {}(), or make kernels for {} mode\"\n", made,
                       training ? "train" : "eval", other);
  }

  std::string requirements() const {
    const std::string statements = beginnings() + memory_.statements + target_.requirements(program_);
    return statements.empty() ? "" : python::indent(statements, 1);
  }

  // Of tensors whose memory forward looks at from its beginning on: as_strided with a storage offset.
  std::string beginnings() const {
    const Json source = parse(graph_.source_json, "{}");
    if (!source.is_object() || !source.contains("begins")) return "";
    std::string out;
    for (size_t place = 0; place < inputs_.size(); ++place) {
      for (const Json& begin : source["begins"]) {
        if (begin.at(0) != (inputs_[place].kind == InputKind::kUser) || begin.at(1) != inputs_[place].target) continue;
        const int64_t offset = begin.at(2);
        const std::string reason = fmt::format(
            "{} does not begin at element {} of its memory; make kernels for where it begins", label(inputs_[place]),
            offset);
        out += fmt::format("if tensors[{}].storage_offset() != {}:\n    return {}\n", place, offset,
                           python::quoted(reason));
      }
    }
    return out;
  }

  // A local of forward, out of the way of its parameters.
  std::string local(const std::string& name) const { return call_.names.contains(name) ? name + "_" : name; }

  // Forward's parameters have the names that its callers know, `len` maybe. What they hide from its body gets another
  // name, defined before the class.
  std::string without_hidden_names(std::string& body) const {
    std::string aliases;
    for (const std::string_view use :
         {"why_not(", "warn_once(", "kernel_forward(", "graphed_forward(", "raise_refused(", "len(", "repr(", "float(",
          "torch.cuda", "torch.return_types", "torch.device(", "DEVICE =="}) {
      const std::string name(use.substr(0, use.find_first_of("(. ")));
      if (!call_.names.contains(name) || body.find(use) == std::string::npos) continue;
      const std::string alias = fmt::format("kw_{0} = {0}\n", name);
      if (aliases.find(alias) == std::string::npos) aliases += alias;
      body = with_prefix(body, use, "kw_");
    }
    return aliases.empty() ? "" : aliases + "\n\n";
  }

  std::string held(const std::string& access) const {
    return wraps_ ? python::rename_word(access, "self", "self.module") : access;
  }

  std::string access(const GraphInput& input) const {
    if (input.kind == InputKind::kUser) {
      const auto found = call_.tensors.find(input.target);
      KW_ASSERT(found != call_.tensors.end(), "user input " + input.target + " stands nowhere in the call");
      return found->second;
    }
    return held(input.access);
  }

  std::string tensor_list() const {
    std::vector<std::string> parts;
    std::string source;
    for (const GraphInput& input : inputs_)
      if (source.empty() && (input.kind == InputKind::kUser || !input.access.empty()) &&
          graph_.type(input.value).device == graph_device_)
        source = access(input) + ".device";
    if (source.empty()) source = "torch.device(DEVICE)";
    for (const GraphInput& input : inputs_) {
      const bool made = input.kind == InputKind::kConstant && input.access.empty();
      const std::string place = graph_.type(input.value).device == graph_device_
                                    ? source
                                    : python::quoted(graph_.type(input.value).device);
      parts.push_back(made ? fmt::format("constant_{}({})", graph_.values[input.value].name, place) : access(input));
    }
    return python::wrapped_call(local("tensors") + " = (", parts, parts.size() == 1 ? ",)" : ")");
  }

  std::string model_class() const {
    std::string body;
    const std::string reason = local("reason");
    std::string original = wraps_ ? "self.module(" : "super().forward(";
    if (!wraps_ && call_.names.contains("super"))
      original = call_.passed_on.empty() ? "Model.forward(self" : "Model.forward(self, ";
    const std::string give_up = "return " + original + call_.passed_on + ")";
    if (!call_.obstacles.empty()) {
      body += fmt::format(
          "if {}:\n    warn_once(\"the call has other arguments than the one it was made for; pass the same, or make "
          "kernels for these\")\n    {}\n",
          join(call_.obstacles, " or "), give_up);
    }
    for (const auto& [first, second] : same_tensors())
      body += fmt::format(
          "if {0} is not {1}:\n    warn_once(\"{0} and {1} are no longer one tensor; make kernels for the two\")\n    "
          "{2}\n",
          first, second, give_up);
    body += moved_tensors() + tensor_list() + "\n";
    body += fmt::format("{0} = why_not({1}, {2})\nif {0} is not None:\n    warn_once({0})\n    {3}\n", reason, module_,
                        local("tensors"), give_up);
    body += run_kernels();
    body += mutations();
    body += "return " + result() + "\n";

    std::string out = without_hidden_names(body);
    out += wraps_ ? "class ModelNew(torch.nn.Module):\n    \"\"\"A module with its forward pass in the functions "
                    "above; whatever they were not made for runs in the module itself.\"\"\"\n\n"
                  : "class ModelNew(Model):\n    \"\"\"Model with its forward pass in the functions above; whatever "
                    "they were not made for runs in Model itself.\"\"\"\n\n";
    if (wraps_) out += "    def __init__(self, module):\n        super().__init__()\n        self.module = module\n\n";
    out += "    def forward(self" + (call_.parameters.empty() ? "" : ", " + call_.parameters) + "):\n" +
           python::indent(body, 2);
    return out;
  }

  // Expressions of one tensor that had two names, where forward writes to it: the graph knows the first alone.
  std::vector<std::pair<std::string, std::string>> same_tensors() const {
    std::vector<std::pair<std::string, std::string>> pairs;
    const Json source = parse(graph_.source_json, "{}");
    if (!source.is_object() || !source.contains("same")) return pairs;
    for (const Json& pair : source["same"]) pairs.emplace_back(held(pair.at(0)), held(pair.at(1)));
    return pairs;
  }

  // Forward itself moves plain tensors, which Module.to leaves on the CPU, to where it computes; so it was captured.
  std::string moved_tensors() const {
    const Json source = parse(graph_.source_json, "{}");
    if (!source.is_object() || !source.value("moves_tensors", false)) return "";
    std::string place = "DEVICE";
    for (const GraphInput& input : inputs_)
      if (input.kind == InputKind::kParameter && place == "DEVICE") place = access(input) + ".device";
    std::string out;
    for (const GraphInput& input : inputs_)
      if (input.kind == InputKind::kConstant && !input.access.empty() &&
          graph_.type(input.value).device == graph_device_)
        out += fmt::format("if isinstance({0}, torch.Tensor) and {0}.is_cpu:\n    {0} = {0}.to({1})\n", access(input),
                           place);
    return out;
  }

  // Triton launches on the current device, which need not be the tensors'.
  std::string run_kernels() const {
    std::string place;
    for (size_t at = 0; at < inputs_.size() && place.empty(); ++at)
      if (graph_.type(inputs_[at].value).device == graph_device_)
        place = fmt::format("{}[{}].device", local("tensors"), at);
    const std::string kept = kept_ ? fmt::format("*kept_weights(self, {}), ", local("tensors")) : "";
    const std::string call = (returned_.empty() ? "" : local(returned_.size() == 1 ? "result" : "results") + " = ") +
                             (program_.graphs ? "graphed_forward(self, " : "kernel_forward(") + kept + "*" +
                             local("tensors") + ")\n";
    if (target_.device() != "cuda" || place.empty()) return call;
    return (program_.graphs ? target_.host_checks(program_) : "") +
           fmt::format(
               "if DEVICE == \"cuda\" and {0}.index != torch.cuda.current_device():\n    with "
               "torch.cuda.device({0}):\n       "
               " {1}else:\n    {1}",
               place, call);
  }

  bool is_returned(const GraphOutput& output) const {
    return std::find(returned_.begin(), returned_.end(), output) != returned_.end();
  }

  // The Python expression for an output of the graph.
  std::string result_name(size_t index) const {
    if (returned_.size() == 1) return local("result");
    return fmt::format(
        "{}[{}]", local("results"),
        std::count_if(graph_.outputs.begin(), graph_.outputs.begin() + static_cast<std::ptrdiff_t>(index),
                      [&](const GraphOutput& output) { return is_returned(output); }));
  }

  std::string mutations() const {
    std::string out;
    for (size_t index = 0; index < graph_.outputs.size(); ++index) {
      const GraphOutput& output = graph_.outputs[index];
      if (output.kind == OutputKind::kUser || !is_returned(output)) continue;
      const GraphInput& input = mutated_input(graph_, output);
      if (input.value == output.value) continue;
      out += fmt::format("{}.copy_({})\n", access(input), result_name(index));
    }
    return out;
  }

  std::string result() const {
    if (!graph_.result_json.empty()) return shaped(Json::parse(graph_.result_json));
    std::vector<std::string> names;  // graphs written by hand
    for (size_t index = 0; index < graph_.outputs.size(); ++index)
      if (graph_.outputs[index].kind == OutputKind::kUser) names.push_back(result_name(index));
    return names.empty() ? "None" : join(names, ", ");
  }

  std::string shaped(const Json& shape) const {
    if (shape.contains("output")) return result_name(shape["output"].get<size_t>());
    if (shape.contains("constant")) return python::literal(shape["constant"]);
    std::vector<std::string> parts;
    if (shape.contains("dict")) {
      for (const Json& pair : shape["dict"]) parts.push_back(python::literal(pair.at(0)) + ": " + shaped(pair.at(1)));
      return "{" + join(parts, ", ") + "}";
    }
    const bool is_list = shape.contains("list");
    for (const Json& item : is_list ? shape["list"] : shape.at("tuple")) parts.push_back(shaped(item));
    const std::string inner = join(parts, ", ");
    if (shape.value("named", "") == "Size") return "torch.Size([" + inner + "])";
    if (shape.contains("named"))
      return fmt::format("torch.return_types.{}(({}))", shape["named"].get<std::string>(),
                         inner + (parts.size() == 1 ? "," : ""));
    return is_list ? "[" + inner + "]" : "(" + inner + (parts.size() == 1 ? ",)" : ")");
  }

  const Graph& graph_;
  const Program& program_;
  const TargetPrinter& target_;
  bool wraps_;
  const std::optional<KeptWeights>& kept_;
  std::string module_;
  std::vector<GraphInput> inputs_;
  std::vector<GraphOutput> returned_;
  SharedMemoryCheck memory_;
  CallText call_;
  std::string graph_device_;
};

}  // namespace

std::string with_prefix(const std::string& text, std::string_view use, std::string_view prefix) {
  std::string out;
  size_t copied = 0;
  for (size_t at = text.find(use); at != std::string::npos; at = text.find(use, at + use.size())) {
    if (at > 0 &&
        (std::isalnum(static_cast<unsigned char>(text[at - 1])) || text[at - 1] == '_' || text[at - 1] == '.'))
      continue;
    out.append(text, copied, at - copied).append(prefix);
    copied = at;
  }
  return out.append(text, copied);
}

std::string model_class_text(const Graph& graph, const Program& program, const TargetPrinter& target, bool wraps_module,
                             const std::optional<KeptWeights>& kept) {
  return ClassWriter(graph, program, target, wraps_module, kept).run();
}

}  // namespace kw
