// print_cpu_module KERNEL.txt …: the Python module that the CPU target makes of kernels in text form, with
// `launch_KERNEL(buffers…)` for each.
#include <cstdio>

#include "emit/kernel_text.hpp"
#include "emit/target_printer.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

using namespace kw;

namespace {

std::string module_of(const Program& program) {
  const auto printer = make_cpu_printer();
  std::string text = printer->imports() + "\n" + printer->kernels(program);
  for (size_t index = 0; index < program.kernels.size(); ++index) {
    KernelStep step;
    step.kernel = static_cast<int>(index);
    for (const kernel_ir::Buffer& buffer : program.kernels[index].buffers) step.tensors.push_back(buffer.name);
    const std::string launch = printer->launch(program, step, nullptr);
    text += "\n\ndef launch_" + program.kernels[index].name + "(" + join(step.tensors, ", ") + "):\n";
    for (const std::string& line : split_lines(launch.empty() ? "pass" : launch)) text += "    " + line + "\n";
  }
  return text + printer->trailer(program);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Program program;
    for (int i = 1; i < argc; ++i) {
      const std::string text = read_file(argv[i]);
      program.kernels.push_back(kernel_ir::parse_kernel(text.substr(0, text.find("----\n"))));
      kernel_ir::check_kernel(program.kernels.back());
    }
    std::fputs(module_of(program).c_str(), stdout);
    return 0;
  } catch (const Error& error) {
    std::fputs(render(error).c_str(), stderr);
    return error.exit_code();
  }
}
