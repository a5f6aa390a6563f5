// What stands around a kernel's loops: its signature, and the constants that the loops name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emit/cpu/cpp_text.hpp"
#include "emit/cpu/loop_nest.hpp"
#include "emit/kernel_ir.hpp"

namespace kw::cpu {

// The constant that holds a block's size, the variable that walks its starts, and the one that holds its end.
struct BlockNames {
  std::string size, first, end;
};
using BlocksByAxis = std::map<int, BlockNames>;

std::string signature(const kernel_ir::Kernel& kernel, const std::vector<std::string>& buffers, bool takes_threads);

// Those that `body` mentions.
std::string constants(const kernel_ir::Kernel& kernel, const LoopNest& nest, const AxisNames& axes,
                      const BlocksByAxis& blocks, const std::string& body);

}  // namespace kw::cpu
