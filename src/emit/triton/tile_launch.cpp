#include "emit/triton/tile_launch.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emit/triton/tile_printer.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::triton {

using tile::Symbol;

namespace {

// A number of blocks and its text, to be multiplied with.
std::string factor_text(const tile::Index& index, const std::string& text) {
  return kernel::as_constant(index) || kernel::as_symbol(index) ? text : "(" + text + ")";
}

class GridLines {
 public:
  GridLines(const tile::Program& program, const IndexNames& names) : program_(program), names_(names) {}

  std::vector<std::string> run() {
    if (program_.grid.empty()) return {};
    if (program_.grid.size() == 1) {
      line(fmt::format("{} = tl.program_id(0)", name(program_.grid[0])));
      return std::move(lines_);
    }
    std::string rest = "program";
    while (names_.is_taken(rest)) rest += "_id";
    line(fmt::format("{} = tl.program_id(0)", rest));
    std::vector<Symbol> slower = program_.grid;
    if (program_.order.grouped >= 0) {
      std::erase(slower, program_.order.grouped);
      std::erase(slower, program_.order.along);
      group(rest, slower.empty());
      rest = fmt::format("{} // ({} * {})", rest, count(program_.order.grouped), count(program_.order.along));
    }
    for (size_t place = slower.size(); place-- > 0;) {
      const std::string left = rest.find(' ') == std::string::npos ? rest : "(" + rest + ")";
      line(place == 0 ? fmt::format("{} = {}", name(slower[place]), rest)
                      : fmt::format("{} = {} % {}", name(slower[place]), left, count(slower[place])));
      rest = fmt::format("{} // {}", left, count(slower[place]));
    }
    return std::move(lines_);
  }

 private:
  void line(std::string text) { lines_.push_back(std::move(text)); }
  const std::string& name(Symbol symbol) const { return program_.symbols[symbol].name; }
  std::string count(Symbol symbol) const {
    const tile::Index& index = program_.symbols[symbol].count;
    return factor_text(index, names_.spelled(index, {}));
  }

  // `order.count` rows of blocks at a time, column by column: neighbours share what they read.
  void group(const std::string& program, bool alone) {
    const std::string rows = name(program_.order.grouped), columns = name(program_.order.along);
    const std::string row_count = count(program_.order.grouped), column_count = count(program_.order.along);
    std::string within = program;
    if (!alone) {
      within = program + "_of_plane";
      line(fmt::format("{} = {} % ({} * {})", within, program, row_count, column_count));
    }
    const std::string group = fmt::format("({} * {})", program_.order.count, column_count);
    line(fmt::format("first_{} = {} // {} * {}", rows, within, group, program_.order.count));
    line(fmt::format("grouped_{0} = tl.minimum({1} - first_{0}, {2})", rows, row_count, program_.order.count));
    line(fmt::format("{0} = first_{0} + {1} % {2} % grouped_{0}", rows, within, group));
    line(fmt::format("{} = {} % {} // grouped_{}", columns, within, group, rows));
  }

  const tile::Program& program_;
  const IndexNames& names_;
  std::vector<std::string> lines_;
};

}  // namespace

bool has_windows(const tile::Program& program) {
  bool found = false;
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    found = found || (one.kind == tile::Kind::kLoad && one.mode == tile::CopyMode::kBulk);
  });
  return found;
}

std::vector<std::string> definition_lines(const tile::Program& program) {
  std::vector<std::string> parameters, kept;
  for (const tile::Buffer& buffer : program.buffers) parameters.push_back(buffer.name);
  for (const tile::SymbolInfo& symbol : program.symbols) {
    if (symbol.kind != tile::SymbolKind::kSize) continue;
    parameters.push_back(symbol.name);
    // Triton makes a number of an argument that is 1: one that may be is kept as it is.
    if (symbol.range.low <= 1 && symbol.range.high >= 1) kept.push_back("\"" + symbol.name + "\"");
  }
  return {kept.empty() ? "@triton.jit" : fmt::format("@triton.jit(do_not_specialize=[{}])", join(kept, ", ")),
          fmt::format("def {}({}):", program.name, join(parameters, ", "))};
}

std::vector<std::string> symbol_lines(const tile::Program& program, const IndexNames& names) {
  std::vector<std::string> lines = GridLines(program, names).run();
  std::vector<bool> used(program.symbols.size());
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    collect_symbols(one.index, used);
    if (one.mode == tile::CopyMode::kPlain)
      for (const tile::Coordinate& coordinate : one.access.coordinates) collect_symbols(coordinate.index, used);
    const bool finds_place = one.reduce == tile::ReduceOp::kArgMax || one.reduce == tile::ReduceOp::kArgMin;
    if (one.kind == tile::Kind::kFold && finds_place)
      for (Symbol lane : one.lanes) used[lane] = true;
  });
  for (size_t symbol = 0; symbol < used.size(); ++symbol)
    if (const tile::SymbolInfo& info = program.symbols[symbol]; used[symbol] && info.kind == tile::SymbolKind::kLane)
      lines.push_back(
          fmt::format("{} = tl.arange(0, {})", info.name, tile::width_of(program, static_cast<Symbol>(symbol))));
  return lines;
}

int64_t block_count(const tile::Program& program) {
  int64_t count = 1;
  for (Symbol symbol : program.grid) {
    const auto number = kernel::as_constant(program.symbols[symbol].count);
    KW_ASSERT(number, "the grid of '" + program.name + "' hangs on run-time sizes");
    count *= *number;
  }
  return count;
}

std::string launch_function(const tile::Program& program, const IndexNames& names) {
  std::vector<std::string> parameters, counts;
  for (const tile::Buffer& buffer : program.buffers) parameters.push_back(buffer.name);
  for (const tile::SymbolInfo& symbol : program.symbols)
    if (symbol.kind == tile::SymbolKind::kSize) parameters.push_back(symbol.name);
  for (Symbol symbol : program.grid) {
    const tile::Index& index = program.symbols[symbol].count;
    counts.push_back(factor_text(index, names.spelled_in_python(index)));
  }
  std::string options = fmt::format("num_warps={}", program.warps);
  if (program.max_registers) options += fmt::format(", maxnreg={}", program.max_registers);
  const std::string memory = has_windows(program)
                                 ? "    # Kernels describe the windows that they read through in memory of their own.\n"
                                   "    triton.set_allocator(lambda size, alignment, stream: "
                                   "torch.empty(size, dtype=torch.int8, device=\"cuda\"))\n"
                                 : "";
  return fmt::format("def launch_{0}({1}):\n{4}    blocks = {2}\n    if blocks:\n        {0}[(blocks,)]({1}, {3})\n",
                     program.name, join(parameters, ", "), counts.empty() ? "1" : join(counts, " * "), options, memory);
}

}  // namespace kw::triton
