// print_cpu_module KERNEL.txt …: the Python module that the CPU target makes of kernels in text form, with
// `launch_KERNEL(buffers…)` for each.
#include <cstdio>

#include "emit/target_printer.hpp"
#include "group_text.hpp"
#include "plan/plan.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "targets/targets.hpp"

using namespace kw;

namespace {

std::string module_of(const Program& program) {
  const auto printer = make_cpu_printer();
  std::string text = printer->imports(program) + "\n" + printer->kernels(program);
  for (size_t index = 0; index < program.tiles.size(); ++index) {
    TileStep step{static_cast<int>(index), {}, {}};
    for (const tile::Buffer& buffer : program.tiles[index].buffers) step.tensors.push_back(buffer.name);
    text += "\n\ndef launch_" + program.tiles[index].name + "(" + join(step.tensors, ", ") + "):\n";
    for (const std::string& line : split_lines(printer->launch(program, step, nullptr))) text += "    " + line + "\n";
  }
  return text + printer->trailer(program);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Program program;
    for (int i = 1; i < argc; ++i) {
      const std::string text = read_file(argv[i]);
      program.tiles.push_back(cpu_tiles(parse_group(text.substr(0, text.find("----\n")))));
    }
    lower_for(target_named("cpu"), program);
    std::fputs(module_of(program).c_str(), stdout);
    return 0;
  } catch (const Error& error) {
    std::fputs(render(error).c_str(), stderr);
    return error.exit_code();
  }
}
