#include "emit/cpu/kernel_frame.hpp"

#include <fmt/format.h>

#include "emit/cpu/code_writer.hpp"
#include "emit/cpu/kernel_printer.hpp"
#include "support/text.hpp"

namespace kw::cpu {

using namespace kw::kernel_ir;

std::string signature(const Kernel& kernel, const std::vector<std::string>& buffers, bool takes_threads) {
  std::vector<std::string> parameters;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Buffer& buffer = kernel.buffers[i];
    parameters.push_back((buffer.role == BufferRole::kInput ? "const " : "") + storage_type(buffer.dtype) + "* " +
                         buffers[i]);
  }
  if (takes_threads) parameters.push_back("int threads");
  const std::string head = std::string("extern \"C\" ") + (refuses_indices(kernel) ? "const int64_t* " : "void ") +
                           kernel.name + "(";
  const std::string line = head + join(parameters, ", ") + ") {\n";
  if (line.size() <= 120) return line;
  return head + "\n    " + join(parameters, ",\n    ") + ") {\n";
}

std::string constants(const Kernel& kernel, const LoopNest& nest, const AxisNames& axes, const BlocksByAxis& blocks,
                      const std::string& body) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    text += fmt::format("  constexpr int64_t {} = {};\n", name, value);
  };
  for (size_t axis = 0; axis < kernel.axes.size(); ++axis)
    if (mentions(body, axes.extents[axis])) add(axes.extents[axis], std::to_string(kernel.axes[axis].extent));
  for (const AxisBlock& block : nest.blocks) add(blocks.at(block.axis).size, std::to_string(block.size));
  if (nest.piece) add(blocks.at(nest.vector_axis).size, std::to_string(nest.piece));
  return text;
}

}  // namespace kw::cpu
