#include "emit/module_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "emit/forward_text.hpp"
#include "emit/program_steps.hpp"
#include "emit/python_text.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {
namespace {

constexpr std::string_view kRestoreStrides = R"(def restore_strides(tensor, strides):
    """The tensor itself where the library chose the strides that the kernels were made for, else a copy with them."""
    if tensor.stride() == strides:
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


)";

constexpr std::string_view kAligned = R"(def aligned(tensor, start, elements):
    """So many elements from the tensor's element `start` on, copied where 16 does not divide their address: the bulk
    copy engine reads nowhere else."""
    if start == 0 and tensor.data_ptr() % 16 == 0:
        return tensor
    part = tensor.as_strided((elements,), (1,), tensor.storage_offset() + start)
    return part if part.data_ptr() % 16 == 0 else part.clone()


)";

// The functional operator that tracing leaves runs PyTorch's own kernel even where the layer would take cuDNN's, which
// is faster and rounds otherwise.
constexpr std::string_view kTrainBatchNorm =
    R"(def train_batch_norm(x, weight, bias, running_mean, running_var, momentum, eps):
    """What batch_norm returns in training mode, and the running statistics after it."""
    running_mean, running_var = running_mean.clone(), running_var.clone()
    out = torch.batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps, torch.backends.cudnn.enabled)
    return out, running_mean, running_var


)";

constexpr std::string_view kRnnSteps = R"(def rnn_steps(products, first, weight, activation):
    """h of every step: h[t] = activation(products[t] + h[t - 1] @ weight.T), with `first` before the first."""
    states = torch.empty(products.shape, dtype=products.dtype, device=products.device)
    state, columns = first, weight.t()
    for product, made in zip(products, states):
        state = activation(torch.addmm(product, state, columns, out=made))
    return states


)";

constexpr std::string_view kLinearSteps = R"(def linear_steps(inputs, state, decay, strides=None):
    """h[t] = decay[t] * h[t - 1] + inputs[t], with `state` before the first: of every step, where strides are given."""
    decays = decay if isinstance(decay, torch.Tensor) else [decay] * len(inputs)
    states = []
    for factor, step in zip(decays, inputs):
        state = factor * state + step
        states.append(state)
    if strides is None:
        return state
    made = torch.empty_strided(inputs.shape, strides, dtype=state.dtype, device=state.device)
    return torch.stack(states, out=made)


)";

constexpr std::string_view kLstmSteps = R"(def lstm_steps(products, first, weight, cell, every_cell=False):
    """h of every step, the last c, and every c if wanted: PyTorch's LSTM, whose gates' arguments are
    products[t] + h[t - 1] @ weight.T."""
    shape = (products.shape[0], *first.shape)
    states = torch.empty(shape, dtype=products.dtype, device=products.device)
    state, columns, cells = first, weight.t(), []
    for product, made in zip(products, states):
        write, keep, candidate, show = torch.addmm(product, state, columns).chunk(4, 1)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(write) * torch.tanh(candidate)
        state = torch.mul(torch.sigmoid(show), torch.tanh(cell), out=made)
        if every_cell:
            cells.append(cell)
    return (states, cell, torch.stack(cells)) if every_cell else (states, cell)


)";

constexpr std::string_view kGruSteps = R"(def gru_steps(products, first, weight, bias=None):
    """h of every step: PyTorch's GRU, whose gates take products[t] and, of the state, h[t - 1] @ weight.T + bias."""
    shape = (products.shape[0], *first.shape)
    states = torch.empty(shape, dtype=products.dtype, device=products.device)
    state = first
    for product, made in zip(products, states):
        of_state, of_input = torch.nn.functional.linear(state, weight, bias).chunk(3, 1), product.chunk(3, 1)
        reset, update = torch.sigmoid(of_input[0] + of_state[0]), torch.sigmoid(of_input[1] + of_state[1])
        candidate = torch.tanh(of_input[2] + reset * of_state[2])
        state = torch.add((state - candidate) * update, candidate, out=made)
    return states


)";

// Kernels of one stream run one after the other, so that they can share a counter.
constexpr std::string_view kEndedPrograms = R"(@functools.cache
def counter_of(device, stream):
    return torch.zeros(1, dtype=torch.int32, device=device)


def ended_programs(device):
    """Counts the programs of a kernel that have ended; 0 between kernels, for the last program sets it back."""
    return counter_of(device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0)


)";

// Replays of two graphs may overlap, on two streams: each graph has counters of its own.
constexpr std::string_view kEndedProgramsOfGraphs = R"(@functools.cache
def counter_of(device, stream):
    return torch.zeros(1, dtype=torch.int32, device=device)


def ended_programs(device):
    """Counts the programs of a kernel that have ended; 0 between kernels, for the last program sets it back."""
    if device.type != "cuda":
        return counter_of(device, 0)
    if torch.cuda.is_current_stream_capturing():
        return torch.zeros(1, dtype=torch.int32, device=device)  # the graph's own
    return counter_of(device, torch.cuda.current_stream(device).cuda_stream)


)";

std::string commented(const std::string& header) {
  std::string out;
  for (const std::string& line : split_lines(header))
    out += (line.starts_with('#') ? line : line.empty() ? "#" : "# " + line) + "\n";
  return out;
}

std::string bound_name(const std::string& import) {
  const std::string name = import.substr(import.find_last_of(' ') + 1);
  return name.substr(0, name.find('.'));
}

// Import lines whose name the text uses, each once: the standard library's, then PyTorch's and Triton's.
std::vector<std::string> needed_imports(const std::string& imports, const std::string& text) {
  std::set<std::string> standard, others;
  for (const std::string& line : split_lines(imports)) {
    if (line.empty() || !python::has_word(text, bound_name(line))) continue;
    const bool is_standard = line.find("torch") == std::string::npos && line.find("triton") == std::string::npos;
    (is_standard ? standard : others).insert(line);
  }
  std::vector<std::string> lines(standard.begin(), standard.end());
  lines.emplace_back();
  for (const std::string_view start : {"import ", "from "})
    std::copy_if(others.begin(), others.end(), std::back_inserter(lines),
                 [&](const std::string& line) { return line.starts_with(start); });
  return lines;
}

// The user's functions must go on finding their own globals, and ours what they mean: names of ours that the user's
// file mentions, imports whose name it gives to something else, and functions of Python's that it redefines get another
// name.
void give_way(const std::string& problem, std::string& ours, std::vector<std::string>& imports) {
  for (const std::string& name : python::top_level_names(ours))
    if (name != "ModelNew" && name != "KERNEL_SIGNATURES" && name != "kernel_forward" &&
        python::has_word(problem, name))
      ours = python::rename_word(ours, name, "kw_" + name);
  const std::set<std::string> theirs = python::top_level_names(problem);
  const std::vector<std::string> lines = split_lines(problem);
  for (std::string& import : imports) {
    const std::string name = bound_name(import);
    if ((!theirs.contains(name) && !theirs.contains("*")) ||
        std::find(lines.begin(), lines.end(), import) != lines.end())
      continue;
    ours = python::rename_word(ours, name, "kw_" + name);
    import = import.substr(0, import.find(" as ")) + " as kw_" + name;
  }
  bool redefined = false;
  for (const std::string name : {"all", "any", "float", "getattr", "globals", "id", "isinstance", "len", "list", "next",
                                 "open", "repr", "sorted", "tuple", "vars", "zip"}) {
    if (!theirs.contains(name) && !theirs.contains("*")) continue;
    redefined = true;
    ours = with_prefix(ours, name + "(", "builtins.");
  }
  if (redefined) imports.insert(imports.begin(), "import builtins");
}

std::string stripped(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text + "\n";
}

}  // namespace

std::string write_module(const Graph& graph, const Program& given, const TargetPrinter& target,
                         const ModuleText& text) {
  const Program program = target.runs_ahead() ? with_late_allocations(graph, given) : given;
  std::string kernels = target.kernels(program);
  if (!kernels.empty()) kernels = stripped(kernels);
  const std::string trailer = target.trailer(program);
  const bool wraps_module = text.problem_source.empty();

  std::set<std::string> reserved = python::top_level_names(kernels + trailer);
  reserved.merge(python::top_level_names(target.imports(program)));
  reserved.insert(python::reserved_names().begin(), python::reserved_names().end());
  reserved.insert({"torch",
                   "aten",
                   "os",
                   "sys",
                   "warnings",
                   "functools",
                   "operator",
                   "device",
                   "aligned",
                   "launch",
                   "COMPILED",
                   "scratch",
                   "scratch_part",
                   "Part",
                   "restore_strides",
                   "train_batch_norm",
                   "rnn_steps",
                   "linear_steps",
                   "lstm_steps",
                   "gru_steps",
                   "counter_of",
                   "ended_programs",
                   "float",
                   "kernel_forward",
                   "graphed_forward",
                   "ForwardGraphs",
                   "FORWARD_GRAPHS",
                   "HELD",
                   "KEPT_FROM",
                   "KeptWeights",
                   "KEPT_WEIGHTS",
                   "kept_weights",
                   "prepared_weights",
                   "threading",
                   "weakref",
                   "why_not",
                   "warn_once",
                   "DEVICE",
                   "EXPECTED",
                   "GUARDS",
                   "OWN",
                   "PARTS",
                   "remember",
                   "tensor_guards",
                   "PLACES",
                   "find_own",
                   "own_tensors",
                   "EXTENTS",
                   "WRITTEN",
                   "written_memory_is_shared",
                   "ModelNew",
                   "Model"});
  const TensorNames names(graph, program, reserved);
  const std::optional<KeptWeights> kept = kept_weights(graph, program, target);
  const KernelForward forward = kernel_forward_text(graph, program, target, names, kept);

  std::string functions = kernels.empty() ? "" : kernels + "\n\n";
  if (forward.restores_strides) functions += kRestoreStrides;
  if (forward.aligns_tensors) functions += kAligned;
  if (forward.trains_batch_norm) functions += kTrainBatchNorm;
  if (forward.steps_rnn) functions += kRnnSteps;
  if (forward.steps_linear) functions += kLinearSteps;
  if (forward.steps_lstm) functions += kLstmSteps;
  if (forward.steps_gru) functions += kGruSteps;
  functions += target.launch_functions(program, forward.splits_scratch);
  if (forward.counts_programs) functions += program.graphs ? kEndedProgramsOfGraphs : kEndedPrograms;
  functions += forward.source + "\n\n" + model_class_text(graph, program, target, wraps_module, kept);
  std::string ours = fmt::format("DEVICE = {}\n", target.device_text());
  if (forward.calls_library) ours += "aten = torch.ops.aten\n";
  ours += "\n\n" + functions;
  if (!trailer.empty()) ours += "\n\n" + stripped(trailer);

  std::vector<std::string> imports = needed_imports(
      "import functools\nimport operator\nimport os\nimport sys\nimport threading\nimport warnings\nimport "
      "weakref\nimport torch\n" +
          target.imports(program),
      ours);
  if (!wraps_module) give_way(text.problem_source, ours, imports);
  std::string out = commented(text.header);
  if (wraps_module && !out.empty()) out += "\n";
  if (!wraps_module)
    out += (out.empty() ? "" : "\n") + stripped(text.problem_source) + "\n\n" +
           "# --- Kernels and the module that runs them " + std::string(78, '-') + "\n\n";
  return out + join(imports, "\n") + "\n\n" + ours;
}

}  // namespace kw
