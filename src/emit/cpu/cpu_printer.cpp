// The CPU target: kernels as one C++ source in a string, compiled on first use and called through ctypes.
#include <fmt/format.h>

#include "emit/cpu/embedded.hpp"
#include "emit/cpu/kernel_printer.hpp"
#include "emit/target_printer.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {
namespace {

using kernel::Kernel;

constexpr const char* kIncludes[] = {"algorithm", "cmath", "cstdint", "cstdlib", "cstring", "limits"};
constexpr const char* kIncludesOfSorts[] = {"type_traits", "utility", "vector"};

constexpr const char* kRunCheckedText = R"py(

def run_checked(kernel: str, *arguments: int) -> None:
    """Run a kernel that returns whether it met an index that PyTorch would refuse."""
    function = getattr(load_kernels(), kernel)
    function.restype = ctypes.c_int
    if function(*arguments):
        raise IndexError("index out of range: a tensor of indices holds a value that the dimension it indexes does not have")
)py";

class CpuPrinter : public TargetPrinter {
 public:
  std::string device() const override { return "cpu"; }
  bool shares_tiles() const override { return false; }

  std::string imports() const override {
    return "import ctypes\nimport functools\nimport hashlib\nimport os\nimport platform\nimport re\nimport shlex\nimport shutil\nimport subprocess\n"
           "import tempfile\nimport threading\n\nimport torch\n";
  }

  std::string kernels(const Program& program) const override {
    if (program.kernels.empty()) return "";
    cpu::HelperSet helpers;
    std::string functions, parameters;
    bool refuses = false;
    for (const Kernel& kernel : program.kernels) {
      const cpu::PrintedKernel printed = cpu::print_kernel(kernel, helpers);
      functions += "\n" + printed.text;
      parameters += fmt::format("    (\"{}\", {}, {}),\n", kernel.name, kernel.buffers.size(), printed.takes_threads ? 1 : 0);
      refuses = refuses || cpu::refuses_indices(kernel);
    }
    std::string source;
    for (const char* header : kIncludes) source += fmt::format("#include <{}>\n", header);
    if (helpers.contains("sort_row"))
      for (const char* header : kIncludesOfSorts) source += fmt::format("#include <{}>\n", header);
    if (!helpers.empty()) source += "\nnamespace {\n\n" + cpu::helper_text(helpers) + "\n}  // namespace\n";
    source += functions;
    KW_ASSERT(source.find("\"\"\"") == std::string::npos, "the C++ source would end its Python string");
    return "CPP_SOURCE = r\"\"\"\n" + source + "\"\"\"\n\n# Name, pointers, and whether the number of threads follows them.\nKERNEL_PARAMETERS = [\n" +
           parameters + "]\n\n" + std::string(cpu::kLoaderText) + (refuses ? kRunCheckedText : "");
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
    const std::string line = head + join(arguments, ", ") + ")\n";
    if (line.size() <= 112) return line;
    return head + "\n    " + join(arguments, ",\n    ") + ",\n)\n";
  }

  std::string trailer(const Program&) const override { return ""; }
};

}  // namespace

std::unique_ptr<TargetPrinter> make_cpu_printer() { return std::make_unique<CpuPrinter>(); }

}  // namespace kw
