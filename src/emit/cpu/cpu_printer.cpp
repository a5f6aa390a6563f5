// The CPU target: kernels as one C++ source in a string, compiled on first use and called through ctypes.
#include <fmt/format.h>

#include <algorithm>

#include "emit/runtime/cpu/embedded.hpp"
#include "emit/cpu/tile_printer.hpp"
#include "emit/python_text.hpp"
#include "emit/target_printer.hpp"
#include "lower/in_place.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {
namespace {

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
  std::string device_text() const override { return "\"cpu\""; }
  bool reads_before_it_writes(const lower::Lowered& lowered, int read, int written) const override {
    return lower::reads_before_it_writes_on_cpu(lowered, read, written);
  }

  // The system hands out large blocks anew at each allocation, and each of their pages costs a fault.
  bool gains_by_reuse() const override { return true; }

  std::string imports(const Program&) const override {
    return "import atexit\nimport contextlib\nimport ctypes\nimport functools\nimport hashlib\nimport os\nimport "
           "shlex\nimport shutil\nimport subprocess\n"
           "import tempfile\n\nimport torch\n";
  }

  std::string kernels(const Program& program) const override {
    if (program.tiles.empty()) return "";
    cpu::HelperSet helpers;
    std::string functions, parameters;
    for (const auto& lowered : program.lowered) {
      const cpu::PrintedTile printed = cpu::print_tile_function(*lowered, helpers);
      functions += (functions.empty() ? "" : "\n") + printed.text;
      const tile::Program& tiles = lowered->program;
      parameters += fmt::format("    (\"{}\", {}, {}),\n", tiles.name, cpu::pointer_count(tiles),
                                printed.takes_threads ? 1 : 0);
    }
    const std::string source = cpu::cpp_file(functions, helpers);
    KW_ASSERT(source.find("\"\"\"") == std::string::npos, "the C++ source would end its Python string");
    return "CPP_SOURCE = r\"\"\"\n" + source +
           "\"\"\"\n\n# Name, pointers, and whether the number of threads follows them.\nKERNEL_PARAMETERS = [\n" +
           parameters + "]\n";
  }

  std::string launch(const Program& program, const TileStep& step, const TileStep*) const override {
    const tile::Program& tiles = program.lowered[step.program]->program;
    if (step.repetition) cpu::refuse_tile(tiles, "repeated launches");
    return call(tiles, step.tensors, step.offsets);
  }

  std::string trailer(const Program& program) const override {
    if (program.tiles.empty()) return "";
    const bool some = std::any_of(program.lowered.begin(), program.lowered.end(),
                                  [](const auto& lowered) { return cpu::refuses_indices(lowered->program); });
    return std::string(cpu::kLoaderText) + (some ? kRunCheckedText : "");
  }

 private:
  // Pointers are numbers in Python: offsets are in bytes.
  static std::string call(const tile::Program& tiles, const std::vector<std::string>& tensors,
                          const std::vector<int64_t>& offsets) {
    std::vector<std::string> arguments;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t offset = i < offsets.size() ? offsets[i] * size_of(tiles.buffers[i].dtype) : 0;
      arguments.push_back(tensors[i] + ".data_ptr()" + (offset == 0 ? "" : fmt::format(" + {}", offset)));
    }
    if (cpu::takes_threads(tiles)) arguments.push_back("torch.get_num_threads()");
    std::string head = "load_kernels()." + tiles.name + "(";
    if (cpu::refuses_indices(tiles)) {
      head = "run_checked(";
      arguments.insert(arguments.begin(), "\"" + tiles.name + "\"");
    }
    return python::wrapped_call(head, arguments, ")") + "\n";
  }
};

}  // namespace

std::unique_ptr<TargetPrinter> make_cpu_printer() { return std::make_unique<CpuPrinter>(); }

}  // namespace kw
