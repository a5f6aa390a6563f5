#include "emit/triton/tile_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "emit/python_text.hpp"
#include "emit/runtime/triton/helpers.hpp"
#include "emit/runtime/triton/refused_indices.hpp"
#include "emit/triton/tile_printer.hpp"
#include "emit/triton/tile_symbols.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "tile/block_places.hpp"

namespace kw::triton {

using tile::Symbol;

namespace {

bool is_through_window(const tile::Instruction& one) {
  return one.kind != tile::Kind::kCopy && one.mode == tile::CopyMode::kBulk;
}

}  // namespace

bool has_windows(const tile::Program& program) {
  bool found = false;
  tile::for_each(program.body, [&](const tile::Instruction& one) { found = found || is_through_window(one); });
  return found;
}

bool has_window_on(const tile::Program& program, int buffer) {
  bool found = false;
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    found = found || (is_through_window(one) && one.access.buffer == buffer);
  });
  return found;
}

bool converts_float8(const tile::Program& program) {
  bool found = false;
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    if (one.kind != tile::Kind::kOp || one.op != tile::ScalarOp::kCast) return;
    for (tile::Value value : {one.operands[0], one.results[0]})
      found = found || is_eight_bit_float(program.values[value].type.dtype);
  });
  return found;
}

std::vector<std::string> definition_lines(const tile::Program& program) {
  std::vector<std::string> parameters, kept;
  for (const tile::Buffer& buffer : program.buffers) parameters.push_back(buffer.name);
  if (!sizes_held_against(program).empty()) parameters.emplace_back(kRefusedPointer);
  for (const tile::SymbolInfo& symbol : program.symbols) {
    if (symbol.kind != tile::SymbolKind::kSize) continue;
    parameters.push_back(symbol.name);
    // Triton makes a number of an argument that is 1: one that may be is kept as it is.
    if (symbol.range.low <= 1 && symbol.range.high >= 1) kept.push_back("\"" + symbol.name + "\"");
  }
  if (converts_float8(program)) parameters.push_back(fmt::format("{}: tl.constexpr", kHardwareFloat8Constant));
  const std::string definition = fmt::format("def {}({}):", program.name, join(parameters, ", "));
  return {kept.empty() ? "@triton.jit" : fmt::format("@triton.jit(do_not_specialize=[{}])", join(kept, ", ")),
          definition.size() <= python::kLongestLine
              ? definition
              : python::wrapped_call("def " + program.name + "(", parameters, "):")};
}

std::vector<int64_t> grid_of(const tile::Program& program) {
  std::vector<int64_t> counts;
  for (Symbol symbol : program.grid) {
    const auto number = kernel::as_constant(tile::launched_along(program, symbol));
    KW_ASSERT(number, "the grid of '" + program.name + "' depends on run-time sizes");
    counts.insert(counts.begin(), *number);
  }
  if (counts.empty()) return {1};
  if (program.places.empty()) return counts;
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{1}, std::multiplies<>());
  return {program.consumers.programs > 0 ? std::min(program.consumers.programs, all) : all};
}

int64_t blocks_of(const tile::Program& program) {
  const std::vector<int64_t> counts = grid_of(program);
  return std::accumulate(counts.begin(), counts.end(), int64_t{1}, std::multiplies<>());
}

int64_t multiprocessors_for_row(const tile::Program& program) {
  constexpr int kWarpsSureToRun = 8;
  const int64_t blocks = std::max(1, kWarpsSureToRun / program.warps);
  return (tile::blocks_of_row(program) + blocks - 1) / blocks;
}

std::string launch_function(const tile::Program& program, const IndexText& indices) {
  std::vector<std::string> parameters, counts;
  for (const tile::Buffer& buffer : program.buffers) parameters.push_back(buffer.name);
  for (const tile::SymbolInfo& symbol : program.symbols)
    if (symbol.kind == tile::SymbolKind::kSize) parameters.push_back(symbol.name);
  for (Symbol symbol : program.grid) {
    const tile::Index index = tile::launched_along(program, symbol);
    counts.push_back(factor_text(index, indices.spelled_in_python(index)));
  }
  std::vector<std::string> options = {fmt::format("num_warps={}", program.warps)};
  if (converts_float8(program)) options.push_back(fmt::format("{}={}()", kHardwareFloat8Constant, kHardwareFloat8));
  if (tile::waits_for_grid(program)) options.emplace_back("launch_cooperative_grid=True");
  if (program.max_registers) options.push_back(fmt::format("maxnreg={}", program.max_registers));
  const std::string memory =
      has_windows(program)
          ? "    # Kernels describe their windows, which the bulk copy engine goes by, in memory of their own.\n"
            "    triton.set_allocator(lambda size, alignment, stream: "
            "torch.empty(size, dtype=torch.int8, device=\"cuda\"))\n"
          : "";
  const bool apart = counts.size() > 1 && program.places.empty();
  std::reverse(counts.begin(), counts.end());
  std::string blocks = counts.empty() ? "1" : join(counts, apart ? ", " : " * ");
  if (program.consumers.programs > 0) blocks = fmt::format("min({}, {})", program.consumers.programs, blocks);
  const std::string head = python::wrapped_call("def launch_" + program.name + "(", parameters, "):");
  parameters.insert(parameters.end(), options.begin(), options.end());
  const std::string call = python::wrapped_call(fmt::format("{}[{}](", program.name, apart ? "blocks" : "(blocks,)"),
                                                parameters, ")");
  return fmt::format("{}\n{}    blocks = {}\n    if {}:\n{}", head, memory, blocks, apart ? "all(blocks)" : "blocks",
                     python::indent(call, 2));
}

}  // namespace kw::triton
