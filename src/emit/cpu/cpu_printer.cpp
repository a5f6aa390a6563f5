// The CPU target: kernels as one C++ source in a string, compiled on first use and called through ctypes.
#include <fmt/format.h>

#include <algorithm>

#include "emit/cpu/embedded.hpp"
#include "emit/cpu/kernel_printer.hpp"
#include "emit/python_text.hpp"
#include "emit/target_printer.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {
namespace {

using kernel_ir::Kernel;

constexpr const char* kIncludes[] = {"algorithm", "cmath", "cstdint", "cstdlib", "cstring", "limits"};
constexpr const char* kIncludesOfSorts[] = {"type_traits", "utility", "vector"};

constexpr const char* kRunCheckedText = R"py(

def run_checked(kernel: str, *arguments: int) -> None:
    """Run a kernel that returns null, or an index that PyTorch would refuse and the size of its dimension."""
    function = getattr(load_kernels(), kernel)
    function.restype = ctypes.POINTER(ctypes.c_int64)
    if refused := function(*arguments):
        index, size = refused[0], refused[1]
        # A negative one may have been counted from the end.
        named = f"index {index}" if index >= 0 else f"index {index} or {index - size}"
        raise IndexError(f"{named} is out of range for a dimension of size {size}")
)py";

class CpuPrinter : public TargetPrinter {
 public:
  std::string device() const override { return "cpu"; }
  bool reads_before_it_writes(const Kernel& kernel, int read, int written) const override {
    return cpu::reads_before_it_writes(kernel, read, written);
  }

  // The system hands out large blocks anew at each allocation, and each of their pages costs a fault.
  bool gains_by_reuse() const override { return true; }

  std::string imports() const override {
    return "import atexit\nimport contextlib\nimport ctypes\nimport functools\nimport hashlib\nimport os\nimport "
           "shlex\nimport shutil\nimport subprocess\n"
           "import tempfile\n\nimport torch\n";
  }

  std::string kernels(const Program& program) const override {
    if (program.kernels.empty()) return "";
    cpu::HelperSet helpers;
    std::string functions, parameters;
    for (const Kernel& kernel : program.kernels) {
      const cpu::PrintedKernel printed = cpu::print_kernel(kernel, helpers);
      functions += "\n" + printed.text;
      parameters += fmt::format("    (\"{}\", {}, {}),\n", kernel.name, kernel.buffers.size(),
                                printed.takes_threads ? 1 : 0);
    }
    std::string source;
    for (const char* header : kIncludes) source += fmt::format("#include <{}>\n", header);
    if (helpers.contains("sort_row"))
      for (const char* header : kIncludesOfSorts) source += fmt::format("#include <{}>\n", header);
    if (!helpers.empty()) source += "\nnamespace {\n\n" + cpu::helper_text(helpers) + "\n}  // namespace\n";
    source += functions;
    KW_ASSERT(source.find("\"\"\"") == std::string::npos, "the C++ source would end its Python string");
    return "CPP_SOURCE = r\"\"\"\n" + source +
           "\"\"\"\n\n# Name, pointers, and whether the number of threads follows them.\nKERNEL_PARAMETERS = [\n" +
           parameters + "]\n";
  }

  std::string launch(const Program& program, const KernelStep& step, const KernelStep*) const override {
    const Kernel& kernel = program.kernels[step.kernel];
    if (program_count(kernel) == 0) return "";
    std::vector<std::string> arguments;
    for (size_t i = 0; i < step.tensors.size(); ++i) {
      const int64_t offset = i < step.offsets.size() ? step.offsets[i] * size_of(kernel.buffers[i].dtype) : 0;
      arguments.push_back(step.tensors[i] + ".data_ptr()" + (offset == 0 ? "" : fmt::format(" + {}", offset)));
    }
    if (cpu::takes_threads(kernel)) arguments.push_back("torch.get_num_threads()");
    std::string head = "load_kernels()." + kernel.name + "(";
    if (cpu::refuses_indices(kernel)) {
      head = "run_checked(";
      arguments.insert(arguments.begin(), "\"" + kernel.name + "\"");
    }
    return python::wrapped_call(head, arguments, ")") + "\n";
  }

  std::string launch(const Program&, const TileStep&) const override {
    fail_internal(__FILE__, __LINE__, "tile programs have no form for CPUs yet");
  }

  std::string trailer(const Program& program) const override {
    if (program.kernels.empty()) return "";
    const bool refuses = std::any_of(program.kernels.begin(), program.kernels.end(), cpu::refuses_indices);
    return std::string(cpu::kLoaderText) + (refuses ? kRunCheckedText : "");
  }
};

}  // namespace

std::unique_ptr<TargetPrinter> make_cpu_printer() { return std::make_unique<CpuPrinter>(); }

}  // namespace kw
