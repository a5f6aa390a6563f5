#include "emit/module_writer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emit/forward_text.hpp"
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

// The functional operator that tracing leaves runs PyTorch's own kernel even where the layer would take cuDNN's, which is faster and rounds otherwise.
constexpr std::string_view kTrainBatchNorm = R"(def train_batch_norm(x, weight, bias, running_mean, running_var, momentum, eps):
    """What batch_norm returns in training mode, and the running statistics after it."""
    running_mean, running_var = running_mean.clone(), running_var.clone()
    out = torch.batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps, torch.backends.cudnn.enabled)
    return out, running_mean, running_var


)";

// Kernels of one stream run one after the other, so that they can share a counter.
constexpr std::string_view kEndedPrograms = R"(@functools.cache
def counter_of(device, stream):
    return torch.zeros(1, dtype=torch.int32, device=device)


def ended_programs(device):
    """Counts the programs of a kernel that have ended; 0 between kernels, for the last program sets it back."""
    return counter_of(device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0)


)";

std::string commented(const std::string& header) {
  std::string out;
  for (const std::string& line : split_lines(header)) out += (line.starts_with('#') ? line : line.empty() ? "#" : "# " + line) + "\n";
  return out;
}

// Import lines whose name the text uses.
std::string needed_imports(const std::string& imports, const std::string& text) {
  std::string out;
  for (const std::string& line : split_lines(imports)) {
    const bool is_import = line.starts_with("import ") || line.starts_with("from ");
    const std::string name = line.substr(line.find_last_of(' ') + 1);
    if (!is_import || python::has_word(text, name.substr(0, name.find('.')))) out += line + "\n";
  }
  return out;
}

std::string device_constant(const TargetPrinter& target) {
  if (target.device() == "cuda")
    return "DEVICE = \"cpu\" if os.environ.get(\"TRITON_INTERPRET\") == \"1\" else \"cuda\"  # Triton's interpreter works on CPU tensors\n";
  return fmt::format("DEVICE = {}\n", python::quoted(target.device()));
}

std::string stripped(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text + "\n";
}

}  // namespace

std::string write_module(const Graph& graph, const Program& program, const TargetPrinter& target, const ModuleText& text) {
  std::string kernels = target.kernels(program);
  if (!kernels.empty()) kernels = stripped(kernels);
  const std::string trailer = target.trailer(program);
  const bool wraps_module = text.problem_source.empty();

  std::set<std::string> reserved = python::top_level_names(kernels);
  reserved.merge(python::top_level_names(target.imports()));
  reserved.insert({"torch", "aten", "os", "warnings", "functools", "device", "restore_strides", "train_batch_norm", "counter_of", "ended_programs", "float", "kernel_forward", "why_not", "warn_once", "DEVICE", "EXPECTED", "ModelNew", "Model"});
  const TensorNames names(graph, program, reserved);
  const KernelForward forward = kernel_forward_text(graph, program, target, names);

  std::string functions = kernels.empty() ? "" : kernels + "\n\n";
  if (forward.restores_strides) functions += kRestoreStrides;
  if (forward.trains_batch_norm) functions += kTrainBatchNorm;
  if (forward.counts_programs) functions += kEndedPrograms;
  functions += forward.source + "\n\n" + model_class_text(graph, program, target, wraps_module);
  std::string ours = device_constant(target);
  if (forward.calls_library) ours += "aten = torch.ops.aten\n";
  ours += "\n\n" + functions;
  if (!trailer.empty()) ours += "\n\n" + stripped(trailer);

  // The user's functions must go on finding their own globals, so ours give way.
  if (!wraps_module)
    for (const std::string& name : python::top_level_names(ours))
      if (name != "ModelNew" && name != "KERNEL_SIGNATURES" && name != "kernel_forward" && python::has_word(text.problem_source, name))
        ours = python::rename_word(ours, name, "kw_" + name);

  const std::string imports = needed_imports("import functools\nimport os\nimport warnings\n", ours) + "\nimport torch\n" + needed_imports(target.imports(), ours);
  std::string out = commented(text.header);
  if (!wraps_module) out += (out.empty() ? "" : "\n") + stripped(text.problem_source) + "\n\n" + "# --- Kernels and the module that runs them " + std::string(78, '-') + "\n\n";
  return out + imports + "\n" + ours;
}

}  // namespace kw
