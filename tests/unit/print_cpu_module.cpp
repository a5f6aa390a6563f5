// print_cpu_module KERNEL.txt …: the Python module that the CPU target makes of kernels in text form, with
// `launch_KERNEL(buffers…)` for each.
#include <cstdio>

#include "cpu_tiles.hpp"
#include "emit/kernel_text.hpp"
#include "emit/target_printer.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

using namespace kw;

namespace {

std::string module_of(const Program& program) {
  const auto printer = make_cpu_printer();
  std::string text = printer->imports(program) + "\n" + printer->kernels(program);
  const auto tensors_of = [](const auto& function) {
    std::vector<std::string> tensors;
    for (const auto& buffer : function.buffers) tensors.push_back(buffer.name);
    return tensors;
  };
  const auto add = [&](const auto& function, const auto& step, const std::string& launch) {
    text += "\n\ndef launch_" + function.name + "(" + join(step.tensors, ", ") + "):\n";
    for (const std::string& line : split_lines(launch.empty() ? "pass" : launch)) text += "    " + line + "\n";
  };
  for (size_t index = 0; index < program.kernels.size(); ++index) {
    const KernelStep step{static_cast<int>(index), tensors_of(program.kernels[index]), {}};
    add(program.kernels[index], step, printer->launch(program, step));
  }
  for (size_t index = 0; index < program.tiles.size(); ++index) {
    const TileStep step{static_cast<int>(index), tensors_of(program.tiles[index]), {}};
    add(program.tiles[index], step, printer->launch(program, step, nullptr));
  }
  return text + printer->trailer(program);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Program program;
    for (int i = 1; i < argc; ++i) {
      const std::string text = read_file(argv[i]);
      kernel_ir::Kernel kernel = kernel_ir::parse_kernel(text.substr(0, text.find("----\n")));
      kernel_ir::check_kernel(kernel);
      if (auto tiles = cpu::tiles_of(kernel)) program.tiles.push_back(std::move(*tiles));
      else program.kernels.push_back(std::move(kernel));
    }
    std::fputs(module_of(program).c_str(), stdout);
    return 0;
  } catch (const Error& error) {
    std::fputs(render(error).c_str(), stderr);
    return error.exit_code();
  }
}
