// ModelNew: forward's signature, what it checks before it lets the kernels run, mutations and the result.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "emit/call_text.hpp"
#include "emit/forward_text.hpp"
#include "emit/graph_class.hpp"
#include "emit/module_parts.hpp"
#include "emit/own_tensors.hpp"
#include "emit/python_text.hpp"
#include "emit/shared_memory.hpp"
#include "emit/tensor_guards.hpp"
#include "ir/devices.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {
namespace {

using Json = nlohmann::ordered_json;

Json parse(const std::string& text, const char* empty) { return Json::parse(text.empty() ? empty : text); }

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
        call_(call_text(graph)),
        graph_device_(device_of(graph)) {}

  std::string run() {
    return constants() + expected_table() + memory_.definitions + why_not() + "\n\n" +
           (finds_own() ? own_tensors_text(registered_tensors(inputs_), parts_of_one_mode()) : "") +
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

  // Of a few, one after the other is as fast.
  bool checks_at_once() const { return inputs_.size() > 8; }

  bool finds_own() const { return registered_tensors(inputs_) > 8; }

  std::string expected_table() const {
    std::string out =
        "# What kernel_forward takes, in the order of its parameters: name, shape, strides, dtype, device.\nEXPECTED = "
        "(\n";
    for (const GraphInput& input : inputs_) {
      const TensorType& type = graph_.type(input.value);
      out += fmt::format("    ({}, {}, {}, {}, {}),\n", python::quoted(label(input)), python::tuple(type.shape),
                         python::tuple(type.strides), python::dtype(type.dtype), device(type));
    }
    out += ")\n";
    return out + (checks_at_once() ? std::string(tensor_guards_text()) : "\n\n");
  }

  std::string label(const GraphInput& input) const {
    if (input.kind != InputKind::kUser) return input.target;
    const auto found = call_.tensors.find(input.target);
    return found == call_.tensors.end() ? input.target : found->second;
  }

  std::string why_not() const {
    return "def why_not(module, tensors):\n    \"\"\"Why kernel_forward cannot run on these tensors, and what to do "
           "about it; None where it can.\"\"\"\n" +
           mode_check() + tensor_checks() +
           R"py(    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
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

  std::string tensor_checks() const {
    constexpr std::string_view kLoop = R"py(for tensor, (name, shape, strides, dtype, device) in zip(tensors, EXPECTED):
    if not isinstance(tensor, torch.Tensor) or tensor.shape != shape:
        return f"{name} is not a tensor of shape {shape}; pass one, or make kernels for the other shape"
    if tensor.dtype is not dtype or not (tensor.is_cpu if device == "cpu" else tensor.is_cuda):
        return f"{name} is not {dtype} on {device}; convert it, or make kernels for what it is"
    if tensor.stride() != strides:
        return (
            f"{name} does not have the strides {strides}; copy it into a tensor that has, or make kernels for its own"
        )
)py";
    if (!checks_at_once()) return python::indent(kLoop, 1);
    return "    if not any([guards.check(*tensors) for guards in GUARDS]):\n" + python::indent(kLoop, 2) +
           "        remember(tensors)\n";
  }

  // The modules that forward asks for their mode, where own_tensors finds them: all in one mode, and enough of them.
  std::vector<std::string> parts_of_one_mode() const {
    std::vector<std::string> paths;
    const Json modes = expected_modes();
    for (const Json& mode : modes) {
      const std::optional<std::string> path = registered_path(mode.at(0).get<std::string>());
      if (!path || path->empty() || mode.at(1) != modes[0].at(1)) return {};
      paths.push_back(*path);
    }
    return finds_own() && paths.size() > 4 ? paths : std::vector<std::string>();
  }

  // [expression, is training] of the modules that forward asks; the whole where the graph does not say.
  Json expected_modes() const {
    const Json source = parse(graph_.source_json, "{}");
    if (source.is_object() && source.contains("modes")) return source["modes"];
    return Json::array({Json::array({"self", graph_.training})});
  }

  // Forward may read whether modules are in training mode; graphs that do not say of which are held to the mode of the
  // whole.
  std::string mode_check() const {
    const Json modes = expected_modes();
    if (!parts_of_one_mode().empty()) {
      const bool training = modes[0].at(1).get<bool>();
      return fmt::format("    if {}([part.training for part in PLACES[module][2]]):\n", training ? "not all" : "any") +
             wrong_mode(training);
    }
    std::vector<std::string> flags;
    for (const Json& mode : modes)
      flags.push_back(python::rename_word(mode.at(0).get<std::string>(), "self", "module") + ".training");
    std::set<std::string> taken = {"module", "tensors"};
    const ModuleParts parts = named_parts(flags, [&](const std::string& name) { return free_name(name, taken); });
    std::vector<std::string> training, evaluating;
    for (size_t at = 0; at < flags.size(); ++at)
      (modes[at].at(1).get<bool>() ? training : evaluating).push_back(parts.expressions[at]);
    return python::indent(parts.definitions, 1) + mode_check(training, true) + mode_check(evaluating, false);
  }

  static std::string mode_check(const std::vector<std::string>& flags, bool training) {
    if (flags.empty()) return "";
    std::string condition = fmt::format("    if {}{}:\n", training ? "not " : "", flags[0]);
    if (flags.size() > 1)
      condition = python::indent(
          python::wrapped_call(fmt::format("if {} in (", training ? "False" : "True"), flags, "):"), 1);
    return condition + wrong_mode(training);
  }

  static std::string wrong_mode(bool training) {
    const std::string_view made = training ? "training" : "evaluation", other = training ? "evaluation" : "training";
    return fmt::format("        return \"it was made for {} mode; call {}(), or make kernels for {} mode\"\n", made,
                       training ? "train" : "eval", other);
  }

  std::string requirements() const {
    const std::string statements = beginnings() + target_.requirements(program_);
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

  // A local of the class's or of why_not, out of the way of `taken`, to which it is added, and of all that they name.
  static std::string free_name(const std::string& wished, std::set<std::string>& taken) {
    static const std::set<std::string> kNamed = {"DEVICE",
                                                 "EXPECTED",
                                                 "Model",
                                                 "constant",
                                                 "graphed_forward",
                                                 "kept_weights",
                                                 "kernel_forward",
                                                 "raise_refused",
                                                 "own_tensors",
                                                 "self",
                                                 "torch",
                                                 "warn_once",
                                                 "written_memory_is_shared",
                                                 "why_not"};
    std::string name = wished;
    while (kNamed.contains(name) || python::reserved_names().contains(name) || taken.contains(name)) name += "_";
    taken.insert(name);
    return name;
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
    std::vector<std::string> expressions;
    std::string source;
    for (const GraphInput& input : inputs_)
      if (source.empty() && (input.kind == InputKind::kUser || !input.access.empty()) &&
          graph_.type(input.value).device == graph_device_)
        source = access(input) + ".device";
    if (source.empty()) source = "torch.device(DEVICE)";
    const size_t own = finds_own() ? registered_tensors(inputs_) : 0;
    for (size_t at = own; at < inputs_.size(); ++at) {
      const GraphInput& input = inputs_[at];
      const bool made = input.kind == InputKind::kConstant && input.access.empty();
      const std::string place = graph_.type(input.value).device == graph_device_
                                    ? source
                                    : python::quoted(graph_.type(input.value).device);
      expressions.push_back(made ? fmt::format("constant_{}({})", graph_.values[input.value].name, place)
                                 : access(input));
    }
    std::set<std::string> taken = call_.names;
    for (const char* name : {"tensors", "reason", "addresses", "result", "results"}) taken.insert(local(name));
    const ModuleParts parts = named_parts(expressions, [&](const std::string& name) { return free_name(name, taken); });
    std::vector<std::string> items = parts.expressions;
    if (own > 0) items.insert(items.begin(), fmt::format("*own_tensors({})", module_));
    return parts.definitions + python::wrapped_call(local("tensors") + " = (", items, items.size() == 1 ? ",)" : ")");
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
          "{}\n    warn_once(\"the call has other arguments than the one it was made for; pass the same, or make "
          "kernels for these\")\n    {}\n",
          python::if_any(call_.obstacles), give_up);
    }
    for (const auto& [first, second] : same_tensors())
      body += fmt::format(
          "if {0} is not {1}:\n    warn_once(\"{0} and {1} are no longer one tensor; make kernels for the two\")\n    "
          "{2}\n",
          first, second, give_up);
    body += moved_tensors() + tensor_list() + "\n";
    body += fmt::format("{0} = why_not({1}, {2})\n", reason, module_, local("tensors")) + addresses() +
            fmt::format("if {0} is not None:\n    warn_once({0})\n    {1}\n", reason, give_up);
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

  // Where the tensors lie, for all that ask: of so many, asking twice takes time.
  std::string addresses() const {
    if (memory_.reason.empty() && !program_.graphs) return "";
    std::string body = fmt::format("{} = tuple([tensor.data_ptr() for tensor in {}])\n", local("addresses"),
                                   local("tensors"));
    if (!memory_.reason.empty())
      body += fmt::format("if written_memory_is_shared({}):\n    {} = {}\n", local("addresses"), local("reason"),
                          python::quoted(memory_.reason));
    return fmt::format("if {} is None:\n", local("reason")) + python::indent(body, 1);
  }

  // Triton launches on the current device, which need not be the tensors'.
  std::string run_kernels() const {
    std::string place;
    for (size_t at = 0; at < inputs_.size() && place.empty(); ++at)
      if (graph_.type(inputs_[at].value).device == graph_device_)
        place = fmt::format("{}[{}].device", local("tensors"), at);
    const std::string kept = kept_ ? fmt::format("*kept_weights(self, {}), ", local("tensors")) : "";
    const std::string call = (returned_.empty() ? "" : local(returned_.size() == 1 ? "result" : "results") + " = ") +
                             (program_.graphs ? fmt::format("graphed_forward(self, {}, ", local("addresses"))
                                              : "kernel_forward(") +
                             kept + "*" + local("tensors") + ")\n";
    if (!target_.runs_ahead() || place.empty()) return call;
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
