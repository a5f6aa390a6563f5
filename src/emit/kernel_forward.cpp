// kernel_forward: the Program's steps as Python.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "emit/forward_text.hpp"
#include "emit/in_place.hpp"
#include "emit/python_text.hpp"
#include "emit/scratch_memory.hpp"
#include "emit/tensor_uses.hpp"
#include "ir/devices.hpp"
#include "ir/memory.hpp"
#include "ir/op_registry.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {
namespace {

// Whether the library lays the result out as its shape functions say. Convolutions, normalisations, pooling and
// attention choose for themselves.
bool has_known_strides(const std::string& op, const TensorType& type) {
  if (type.elements() <= 1 || (type.rank() <= 1 && type.is_contiguous()) || op_info(op).lowering == Lowering::kSort)
    return true;
  switch (class_of(op)) {
    case OpClass::kPointwise:
    case OpClass::kReduction:
    case OpClass::kView:
    case OpClass::kDataMovement:
    case OpClass::kRandom:
    case OpClass::kFactory:
    case OpClass::kScan:
    case OpClass::kLoss: return true;
    case OpClass::kContraction: return type.is_contiguous();
    default: return false;
  }
}

// Arguments that may stand by position, since nothing optional precedes them in any schema that has them in front.
bool is_positional(const std::string& name) {
  static const std::set<std::string> kPositional = {
      "self", "other",   "input", "weight", "mat1",  "mat2",   "mat",       "batch1",  "batch2", "vec",
      "vec2", "tensors", "query", "key",    "value", "tensor", "condition", "indices", "target"};
  return kPositional.contains(name);
}

class Writer {
 public:
  // `inputs`: those that the function takes; `kept`: tensors that it takes before them.
  Writer(const Graph& graph, const Program& program, const TargetPrinter& target, const TensorNames& names,
         std::vector<GraphInput> inputs, std::vector<std::string> kept = {})
      : graph_(graph),
        program_(program),
        target_(target),
        names_(names),
        inputs_(std::move(inputs)),
        kept_(std::move(kept)),
        graph_device_(device_of(graph)) {
    for (const auto& [made, held] : in_place_mutations(graph, program, target))
      in_place_[graph.values[made].name] = graph.values[held].name;
    reused_ = reused_results(graph, program, target);
    uses_ = tensor_uses(graph, program, in_place_, {kept_.begin(), kept_.end()});
  }

  KernelForward run() {
    find_scratch({});
    write_steps();
    if (program_.graphs) write_mutations();
    std::vector<std::string> results;
    for (const GraphOutput& output : returned_outputs(graph_, program_, target_))
      results.push_back(names_.of(output.value) + (is_cached(output.value) ? ".clone()" : ""));
    // What only the host does, a replay would not do.
    return finished("kernel_forward", results, program_.graphs ? "" : target_.host_checks(program_));
  }

  // prepared_weights, which returns these tensors.
  KernelForward prepare(const std::vector<std::string>& made) {
    for (auto& [step, names] : uses_.dying)
      std::erase_if(names,
                    [&](const std::string& name) { return std::find(made.begin(), made.end(), name) != made.end(); });
    std::erase_if(uses_.dying, [](const auto& one) { return one.second.empty(); });
    find_scratch({made.begin(), made.end()});
    write_steps();
    std::vector<std::string> results;
    for (const std::string& name : made) results.push_back(names_.of(name));
    return finished("prepared_weights", results, "", made.size() == 1);
  }

 private:
  void write_steps() {
    for (size_t index = 0; index < program_.steps.size(); ++index) {
      next_ = index + 1 < program_.steps.size() ? &program_.steps[index + 1] : nullptr;
      std::visit([&](const auto& step) { write(step); }, program_.steps[index]);
      free_after(index);
    }
  }

  KernelForward finished(const std::string& function, const std::vector<std::string>& results,
                         const std::string& checks, bool is_tuple = false) {
    if (!results.empty()) lines_.push_back("return " + (is_tuple ? "(" + results[0] + ",)" : join(results, ", ")));
    if (lines_.empty()) lines_.push_back("pass");
    const std::vector<std::string> first = split_lines(target_.prologue(program_) + checks);
    lines_.insert(lines_.begin(), first.begin(), first.end());
    if (needs_device_) lines_.insert(lines_.begin(), "device = " + device_source());
    KernelForward result = std::move(result_);
    std::vector<std::string> parameters;
    for (const std::string& name : kept_) parameters.push_back(names_.of(name));
    for (const GraphInput& input : inputs_) parameters.push_back(names_.of(input.value));
    result.source = python::wrapped_call("def " + function + "(", parameters, "):") + "\n";
    for (const std::string& line : lines_) result.source += python::indent(line);
    return result;
  }

  // Constants made once for each device must not be handed out.
  bool is_cached(ValueId value) const {
    return std::any_of(inputs_.begin(), inputs_.end(), [&](const GraphInput& input) {
      return input.value == value && input.kind == InputKind::kConstant && input.access.empty();
    });
  }

  // In a graph, so that buffers take their new contents at each replay.
  void write_mutations() {
    for (const GraphOutput& output : graph_.outputs) {
      if (output.kind == OutputKind::kUser || in_place_.contains(graph_.values[output.value].name)) continue;
      const GraphInput& buffer = mutated_input(graph_, output);
      if (buffer.value != output.value)
        lines_.push_back(fmt::format("{}.copy_({})", names_.of(buffer.value), names_.of(output.value)));
    }
  }

  // --- Steps ---
  void write(const AllocateStep& step) {
    if (step.value != kNoValue && in_place_.contains(graph_.values[step.value].name)) return;
    if (const auto old = reused_.find(step.name); step.value != kNoValue && old != reused_.end()) {
      lines_.push_back(fmt::format("{} = {}", names_.of(step.name), names_.of(old->second)));
      return;
    }
    const std::string& name = step.name.empty() ? graph_.values[step.value].name : step.name;
    lines_.push_back(fmt::format("{} = {}", names_.of(name),
                                 scratch_.starts.contains(name) ? part(name, step.type)
                                 : step.zeros                   ? zeros(step.type)
                                                                : empty(step.type)));
  }

  // The first part comes with the memory.
  std::string part(const std::string& name, const TensorType& type) {
    if (!result_.splits_scratch)
      lines_.push_back(fmt::format("scratch = torch.empty({}, dtype=torch.uint8, device={})", scratch_.bytes,
                                   device(scratch_.device)));
    result_.splits_scratch = true;
    return fmt::format("scratch_part(scratch, {}, {}, {})", scratch_.starts.at(name), python::tuple(type.shape),
                       python::dtype(type.dtype));
  }

  template <typename Launch>
  Launch named(Launch step) const {
    for (std::string& tensor : step.tensors) {
      const auto held = in_place_.find(tensor);
      tensor = names_.of(held == in_place_.end() ? tensor : held->second);
    }
    return step;
  }

  void write(TileStep step) {
    if (step.by_last) return;  // the launch before saw to it
    const auto* next = next_ ? std::get_if<TileStep>(next_) : nullptr;
    std::optional<TileStep> last;
    if (next && next->by_last) last = named(*next);
    if (last) needs_device_ = result_.counts_programs = true;
    std::set<std::string> viewed;
    for (size_t at = 0; at < step.tensors.size(); ++at) {
      std::string& tensor = step.tensors[at];
      const auto held = in_place_.find(tensor);
      const std::string name = names_.of(held == in_place_.end() ? tensor : held->second);
      const bool may_lie_anywhere = lies_anywhere(step, at);
      if (step.repetition && step.offsets[at] != 0) {  // one view for all launches
        const std::string part = names_.of(TensorNames::part(tensor, step.offsets[at]));
        if (viewed.insert(part).second)
          lines_.push_back(fmt::format("{0} = {1}.as_strided((1,), (1,), {1}.storage_offset() + {2})", part, name,
                                       step.offsets[at]));
        tensor = part;
        step.offsets[at] = 0;
      } else {
        tensor = name;
      }
      if (may_lie_anywhere) align(step, at);
    }
    std::string indent;
    if (step.repetition) {
      step.repetition->size = names_.of(TensorNames::counter(step.repetition->size));
      lines_.push_back(fmt::format("for {} in range({}):", step.repetition->size, step.repetition->count));
      indent = "    ";
    }
    for (const std::string& line : split_lines(target_.launch(program_, step, last ? &*last : nullptr)))
      lines_.push_back(indent + line);
  }

  // May a kernel that needs its buffer aligned find it elsewhere? What a call passes or a library returns may begin
  // anywhere; tensors made here, and views of them, begin where the plan says.
  bool lies_anywhere(const TileStep& step, size_t at) const {
    return !uses_.aligned.contains(step.tensors[at]) &&
           target_.needs_alignment(*program_.lowered[step.program], static_cast<int>(at));
  }

  void align(TileStep& step, size_t at) {
    const tile::Program& tiles = program_.tiles[step.program];
    const tile::Buffer& buffer = tiles.buffers[at];
    KW_ASSERT(buffer.role == tile::BufferRole::kInput, "a copy of " + buffer.name + " would be written to");
    result_.aligns_tensors = true;
    step.tensors[at] = fmt::format("aligned({}, {}, {})", step.tensors[at], step.offsets[at],
                                   tile::elements_spanned(tiles, buffer));
    step.offsets[at] = 0;
  }

  void write(const ViewStep& step) { lines_.push_back(fmt::format("{} = {}", names_.of(step.value), view(step))); }

  void write(const CopyStep& step) {
    lines_.push_back(fmt::format("{}.narrow({}, {}, {}).copy_({})", names_.of(step.whole), step.dim, step.start,
                                 step.length, names_.of(step.part)));
  }

  bool is_used(ValueId value) const { return value != kNoValue && uses_.used.contains(graph_.values[value].name); }

  // The results are the normalised tensor, the batch's two statistics, which nobody asks for, and the new running ones.
  bool is_plain_batch_norm(const Node& node) const {
    return node.op == "aten._native_batch_norm_legit_functional.default" && !is_used(node.results[1]) &&
           !is_used(node.results[2]) && node.boolean("training", true);
  }

  void write_batch_norm(const Node& node) {
    const auto name = [&](size_t result) {
      return is_used(node.results[result]) ? names_.of(node.results[result]) : std::string("_");
    };
    std::vector<std::string> arguments;
    for (const char* argument : {"input", "weight", "bias", "running_mean", "running_var", "momentum", "eps"}) {
      const Argument* given = node.find(argument);
      arguments.push_back(given ? text_of(*given) : "None");
    }
    result_.trains_batch_norm = true;
    lines_.push_back(
        python::wrapped_call(fmt::format("{}, {}, {} = train_batch_norm(", name(0), name(3), name(4)), arguments, ")"));
  }

  void write_keep_mask(const Node& node) {
    std::vector<std::string> arguments = {python::tuple(node.integers("size")),
                                          python::number(node.number("keep", 0.0)), text_of(*node.find("dtype")),
                                          device(graph_.type(node.results[0]).device)};
    if (!node.boolean("dropout", true)) arguments.push_back("dropout=False");
    if (node.value("self") != kNoValue) arguments.push_back("beside=" + names_.of(node.value("self")));
    result_.calls_library = true;  // in the mask's definition
    lines_.push_back(python::wrapped_call(names_.of(node.results[0]) + " = keep_mask(", arguments, ")"));
  }

  void write_linear_steps(const Node& node) {
    std::vector<std::string> arguments;
    for (const char* argument : {"input", "first", "decay"}) arguments.push_back(text_of(*node.find(argument)));
    const TensorType& made = graph_.type(node.results[0]);
    const bool every = node.boolean("every", true);
    if (every) arguments.push_back(python::tuple(made.strides));
    result_.steps_linear = true;
    lines_.push_back(python::wrapped_call(names_.of(node.results[0]) + " = linear_steps(", arguments, ")"));
  }

  void write_rnn_steps(const Node& node) {
    std::vector<std::string> arguments;
    for (const char* argument : {"products", "first", "weight"}) arguments.push_back(text_of(*node.find(argument)));
    const std::string kind = node.text("kind");
    const auto name = [&](size_t result) {
      return node.results[result] == kNoValue ? "_" : names_.of(node.results[result]);
    };
    std::string head = name(0);
    if (kind == "lstm") {
      result_.steps_lstm = true;
      const bool has_cells = node.results.size() > 2;
      head += ", " + name(1) + (has_cells ? ", " + name(2) : "") + " = lstm_steps(";
      arguments.push_back(text_of(*node.find("cell")));
      if (has_cells) arguments.push_back("every_cell=True");
    } else if (kind == "gru") {
      result_.steps_gru = true;
      head += " = gru_steps(";
      if (const Argument* bias = node.find("bias")) arguments.push_back(text_of(*bias));
    } else {
      result_.steps_rnn = true;
      head += " = rnn_steps(";
      arguments.push_back("torch." + kind + "_");
    }
    lines_.push_back(python::wrapped_call(head, arguments, ")"));
  }

  void write(const ExternStep& step) {
    const Node& node = graph_.nodes[step.node];
    if (node.op == "kw.rnn_steps.default") {
      write_rnn_steps(node);
      return;
    }
    if (node.op == "kw.linear_steps.default") {
      write_linear_steps(node);
      return;
    }
    if (is_plain_batch_norm(node)) {
      write_batch_norm(node);
      restore_strides_of(node);
      return;
    }
    if (step.mask_vector > 0) {
      write_keep_mask(node);
      return;
    }
    std::vector<std::string> arguments;
    bool by_position = true;
    for (const NamedArgument& argument : node.arguments) {
      by_position = by_position && is_positional(argument.name);
      std::string value = text_of(argument.value);
      // PyTorch asserts here that what wants gradients is contiguous, also where none are made.
      if (argument.name == "self" && node.op == "aten.as_strided_scatter.default") value += ".detach()";
      if (by_position) arguments.push_back(value);
      else if (!python::is_identifier(argument.name))  // aten.uniform(self, from=0.0)
        arguments.push_back(fmt::format("**{{{}: {}}}", python::quoted(argument.name), value));
      else arguments.push_back(argument.name + "=" + value);
    }
    std::vector<std::string> results;
    for (ValueId value : node.results)
      results.push_back(value == kNoValue || !uses_.used.contains(graph_.values[value].name) ? "_" : names_.of(value));
    std::string head;
    if (!results.empty()) {
      head = join(results, ", ");
      if (node.in_list) head = "(" + head + ",)";
      head += " = ";
    }
    lines_.push_back(python::wrapped_call(head + callee(node.op) + "(", arguments, ")"));
    restore_strides_of(node);
  }

  // PyTorch's own functions where they are the same operator: a call through torch.ops takes 5 to 7 us more of the
  // host.
  std::string callee(const std::string& op) {
    static const std::set<std::string_view> kFunctions = {"aten.mm.default",
                                                          "aten.bmm.default",
                                                          "aten.addmm.default",
                                                          "aten.baddbmm.default",
                                                          "aten.mv.default",
                                                          "aten.addmv.default",
                                                          "aten.matmul.default",
                                                          "aten.conv1d.default",
                                                          "aten.conv2d.default",
                                                          "aten.conv3d.default",
                                                          "aten.conv_transpose1d.default",
                                                          "aten.conv_transpose2d.input",
                                                          "aten.conv_transpose3d.input",
                                                          "aten.gru.input",
                                                          "aten.lstm.input"};
    static const std::set<std::string_view> kFunctional = {"aten.linear.default",
                                                           "aten.scaled_dot_product_attention.default"};
    if (kFunctions.contains(op)) return "torch." + std::string(base_name(op));
    if (kFunctional.contains(op)) return "torch.nn.functional." + std::string(base_name(op));
    // Operators of other libraries are called by their whole name; the file has a short one for aten alone.
    const bool is_aten = op.starts_with("aten.");
    result_.calls_library = result_.calls_library || is_aten;
    return is_aten ? op : "torch.ops." + op;
  }

  void restore_strides_of(const Node& node) {
    for (ValueId value : node.results) {
      if (value == kNoValue || !uses_.strides_matter.contains(graph_.values[value].name)) continue;
      const TensorType& type = graph_.type(value);
      if (has_known_strides(node.op, type)) continue;
      result_.restores_strides = true;
      lines_.push_back(fmt::format("{0} = restore_strides({0}, {1})", names_.of(value), python::tuple(type.strides)));
    }
  }

  std::string empty(const TensorType& type) {
    const std::string rest = fmt::format("dtype={}, device={}", python::dtype(type.dtype), device(type.device));
    if (type.is_contiguous()) return fmt::format("torch.empty({}, {})", python::tuple(type.shape), rest);
    return fmt::format("torch.empty_strided({}, {}, {})", python::tuple(type.shape), python::tuple(type.strides), rest);
  }

  std::string zeros(const TensorType& type) {
    return fmt::format("torch.zeros({}, dtype={}, device={})", python::tuple(type.shape), python::dtype(type.dtype),
                       device(type.device));
  }

  std::string view(const ViewStep& step) {
    const std::string& base = names_.of(step.base);
    const TensorType& to = step.type;
    const auto found = uses_.types.find(step.base);
    KW_ASSERT(found != uses_.types.end(), "a view of " + step.base + ", which no step makes");
    const TensorType& from = found->second;
    const int64_t shift = to.offset - from.offset;
    if (shift == 0 && to.shape == from.shape && to.strides == from.strides) return base;
    if (shift == 0 && to.is_contiguous() && from.is_contiguous() && to.elements() == from.elements())
      return fmt::format("{}.view({})", base, python::tuple(to.shape));
    if (shift == 0 && to.rank() == from.rank()) {
      if (const auto order = permutation(from, to)) return fmt::format("{}.permute({})", base, python::tuple(*order));
    }
    if (shift == 0)
      return fmt::format("{}.as_strided({}, {})", base, python::tuple(to.shape), python::tuple(to.strides));
    return fmt::format("{0}.as_strided({1}, {2}, {0}.storage_offset() + {3})", base, python::tuple(to.shape),
                       python::tuple(to.strides), shift);
  }

  static std::optional<Shape> permutation(const TensorType& from, const TensorType& to) {
    Shape order;
    std::vector<bool> taken(from.shape.size(), false);
    for (int64_t axis = 0; axis < to.rank(); ++axis) {
      int64_t source = -1;
      for (int64_t candidate = 0; candidate < from.rank() && source < 0; ++candidate)
        if (!taken[candidate] && from.shape[candidate] == to.shape[axis] && from.strides[candidate] == to.strides[axis])
          source = candidate;
      if (source < 0) return std::nullopt;
      taken[source] = true;
      order.push_back(source);
    }
    return order;
  }

  // --- Arguments of library calls ---
  std::string text_of(const Argument& argument) {
    return std::visit([&](const auto& value) { return text(value); }, argument);
  }
  std::string text(const None&) { return "None"; }
  std::string text(const ValueRef& value) { return value.id == kNoValue ? "None" : names_.of(value.id); }
  std::string text(const ValueList& values) {
    std::vector<std::string> parts;
    for (ValueId value : values.ids) parts.push_back(value == kNoValue ? "None" : names_.of(value));
    return "[" + join(parts, ", ") + "]";
  }
  std::string text(bool value) { return value ? "True" : "False"; }
  std::string text(int64_t value) { return std::to_string(value); }
  std::string text(double value) { return python::number(value); }
  std::string text(const std::string& value) { return python::quoted(value); }
  std::string text(const IntList& values) { return python::list(values); }
  std::string text(const FloatList& values) {
    std::vector<std::string> parts;
    for (double value : values) parts.push_back(python::number(value));
    return "[" + join(parts, ", ") + "]";
  }
  std::string text(const BoolList& values) {
    std::vector<std::string> parts;
    for (bool value : values) parts.push_back(value ? "True" : "False");
    return "[" + join(parts, ", ") + "]";
  }
  std::string text(DType dtype) { return python::dtype(dtype); }
  std::string text(const Keyword& keyword) {
    return keyword.kind == "device" ? device(keyword.name) : "torch." + keyword.name;
  }

  // --- Devices and lifetimes ---
  std::string device(const std::string& captured) {
    if (captured != graph_device_ && !captured.empty()) return python::quoted(captured);
    needs_device_ = true;
    return "device";
  }

  std::string device_source() const {
    for (const GraphInput& input : inputs_)
      if (graph_.type(input.value).device == graph_device_) return names_.of(input.value) + ".device";
    return "torch.device(DEVICE)";
  }

  // Memory that another tensor may have left by then is not held from the start.
  void find_scratch(std::set<std::string> apart) {
    if (!target_.launches_by_address()) return;
    for (const GraphOutput& output : graph_.outputs) apart.insert(graph_.values[output.value].name);
    for (const auto& [made, old] : in_place_) apart.insert(made);
    for (const auto& [made, old] : reused_) apart.insert({made, old});
    for (const auto& [step, names] : uses_.dying) apart.insert(names.begin(), names.end());
    if (!uses_.dying.empty())
      for (const std::string& name : uses_.made)
        if (uses_.is_large(name)) apart.insert(name);
    scratch_ = scratch_memory(graph_, program_, apart);
  }

  // Python frees a local only when the function returns; a large tensor goes as soon as nothing reads it, as it would
  // in eager mode.
  void free_after(size_t index) {
    const auto found = uses_.dying.find(index);
    if (found == uses_.dying.end()) return;
    std::vector<std::string> names;
    for (const std::string& name : found->second) names.push_back(names_.of(name));
    lines_.push_back("del " + join(names, ", "));
  }

  const Graph& graph_;
  const Program& program_;
  const TargetPrinter& target_;
  const TensorNames& names_;
  std::vector<GraphInput> inputs_;
  std::vector<std::string> kept_;
  std::string graph_device_;
  std::vector<std::string> lines_;
  TensorUses uses_;
  std::map<std::string, std::string> in_place_;  // new value → the buffer that takes it at once
  std::map<std::string, std::string> reused_;    // new value → the library's result in whose memory it is made
  ScratchMemory scratch_;
  const Step* next_ = nullptr;  // the step after the one being written
  bool needs_device_ = false;
  KernelForward result_;
};

}  // namespace

std::vector<GraphOutput> returned_outputs(const Graph& graph, const Program& program, const TargetPrinter& target) {
  const std::map<ValueId, ValueId> in_place = in_place_mutations(graph, program, target);
  std::vector<GraphOutput> outputs;
  for (const GraphOutput& output : graph.outputs)
    if (!in_place.contains(output.value) && (!program.graphs || output.kind == OutputKind::kUser))
      outputs.push_back(output);
  return outputs;
}

const GraphInput& mutated_input(const Graph& graph, const GraphOutput& output) {
  const auto input = std::find_if(graph.inputs.begin(), graph.inputs.end(), [&](const GraphInput& one) {
    return one.target == output.target && (one.kind == InputKind::kUser) == (output.kind == OutputKind::kInputMutation);
  });
  KW_ASSERT(input != graph.inputs.end(), "a mutation of " + output.target + ", which is no input");
  return *input;
}

std::vector<GraphInput> used_inputs(const Graph& graph, const Program& program) {
  std::set<std::string> read;
  for (const Step& step : program.steps) {
    if (const auto* tensors = kernel_tensors(step)) read.insert(tensors->begin(), tensors->end());
    if (const auto* view = std::get_if<ViewStep>(&step)) read.insert(view->base);
    if (const auto* call = std::get_if<ExternStep>(&step))
      for_each_operand(graph.nodes[call->node], [&](ValueId value) { read.insert(graph.values[value].name); });
  }
  for (const GraphOutput& output : graph.outputs) read.insert(graph.values[output.value].name);
  // What it writes to must be looked at before a call, too.
  for (const ValueId written : written_inputs(graph)) read.insert(graph.values[written].name);
  std::vector<GraphInput> inputs;
  for (const GraphInput& input : graph.inputs)
    // What a call passes decides the result by its shape and device even where no kernel reads it.
    if (input.kind == InputKind::kUser || read.contains(graph.values[input.value].name)) inputs.push_back(input);
  return inputs;
}

KernelForward kernel_forward_text(const Graph& graph, const Program& program, const TargetPrinter& target,
                                  const TensorNames& names, const std::optional<KeptWeights>& kept) {
  const std::vector<GraphInput> inputs = used_inputs(graph, program);
  if (!kept) return Writer(graph, program, target, names, inputs).run();
  std::vector<GraphInput> sources;
  for (const std::string& name : kept->sources)
    sources.push_back(*std::find_if(inputs.begin(), inputs.end(),
                                    [&](const GraphInput& input) { return graph.values[input.value].name == name; }));
  const KernelForward prepared = Writer(graph, kept->prepares, target, names, sources).prepare(kept->made);
  KernelForward forward = Writer(graph, kept->rest, target, names, inputs, kept->made).run();
  forward.source = prepared.source + "\n\n" + forward.source;
  forward.restores_strides |= prepared.restores_strides;
  forward.trains_batch_norm |= prepared.trains_batch_norm;
  forward.steps_rnn |= prepared.steps_rnn;
  forward.steps_linear |= prepared.steps_linear;
  forward.steps_lstm |= prepared.steps_lstm;
  forward.steps_gru |= prepared.steps_gru;
  forward.calls_library |= prepared.calls_library;
  forward.counts_programs |= prepared.counts_programs;
  forward.aligns_tensors |= prepared.aligns_tensors;
  forward.splits_scratch |= prepared.splits_scratch;
  return forward;
}

}  // namespace kw
