#include "emit/triton/consumers.hpp"
#include "emit/runtime/triton/helpers.hpp"
#include "emit/triton/tile_printer.hpp"

namespace kw::triton {

std::string print_tile_module(const tile::Program& program) {
  const TileKernel kernel = print_tile_kernel(program);
  const std::string helpers = helper_definitions(kernel.helpers);
  std::string text = "import triton\nimport triton.language as tl\n";
  const bool asks_hardware = kernel.helpers.contains(kHardwareFloat8);
  if (asks_hardware || kernel.launch.find("torch.") != std::string::npos) text = "import torch\n" + text;
  if ((kernel.source + helpers).find("libdevice.") != std::string::npos)
    text += "from triton.language.extra import libdevice\n";
  if (has_consumers(program)) text += kGluonImports;
  if (asks_hardware) text += "\nDEVICE = \"cuda\" if torch.cuda.is_available() else \"cpu\"\n";
  return text + "\n\n" + (helpers.empty() ? "" : helpers + "\n\n") + kernel.source + "\n\n" + kernel.launch;
}

}  // namespace kw::triton
