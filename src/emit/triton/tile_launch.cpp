#include "emit/triton/tile_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "emit/python_text.hpp"
#include "emit/triton/lane_dimensions.hpp"
#include "emit/triton/refused_indices.hpp"
#include "emit/triton/tile_printer.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::triton {

using tile::Symbol;

namespace {

constexpr int64_t kGridLimit = 65535;  // of the second and third dimension of a CUDA grid

// Is each of the grid's dimensions one of the launch's? Beside folds and products remainders of one number say more to
// the compiler: depthwise convolutions take half the registers.
bool has_own_dimensions(const tile::Program& program) {
  if (program.grid.size() == 1) return true;
  if (!tile::maps_and_folds(program) || program.grid.size() > 3 || program.order.grouped >= 0) return false;
  const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program);
  return std::all_of(program.grid.begin(), program.grid.end(), [&](Symbol symbol) {
    return symbol == program.grid.back() || kernel::range_of(program.symbols[symbol].count, ranges).high <= kGridLimit;
  });
}

// A number of blocks and its text, to be multiplied with.
std::string factor_text(const tile::Index& index, const std::string& text) {
  return kernel::as_constant(index) || kernel::as_symbol(index) ? text : "(" + text + ")";
}

class GridLines {
 public:
  GridLines(const tile::Program& program, const IndexNames& names) : program_(program), names_(names) {}

  std::vector<std::string> run() {
    if (program_.grid.empty()) return {};
    if (has_own_dimensions(program_)) {
      for (size_t place = 0; place < program_.grid.size(); ++place)
        line(fmt::format("{} = tl.program_id({})", name(program_.grid[place]), program_.grid.size() - 1 - place));
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
    int64_t faster = 1;  // blocks, where their number is known
    const std::string all = rest;
    for (size_t place = slower.size(); place-- > 0;) {
      const std::string left = rest.find('(') == std::string::npos ? rest : "(" + rest + ")";
      line(place == 0 ? fmt::format("{} = {}", name(slower[place]), rest)
                      : fmt::format("{} = {} % {}", name(slower[place]), left, count(slower[place])));
      const auto number = kernel::as_constant(program_.symbols[slower[place]].count);
      faster = number && faster > 0 ? faster * *number : 0;
      const bool single = faster > 0 && all.find(' ') == std::string::npos;
      rest = single ? fmt::format("{} // {}", all, faster) : fmt::format("{} // {}", left, count(slower[place]));
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
    const auto all_rows = kernel::as_constant(program_.symbols[program_.order.grouped].count);
    if (all_rows && *all_rows <= program_.order.count) {
      line(fmt::format("{} = {} % {}", rows, within, row_count));
      line(fmt::format("{} = {} // {}", columns, within, row_count));
      return;
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
  if (!sizes_held_against(program).empty()) parameters.emplace_back(kRefusedPointer);
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
  std::vector<Symbol> lanes;
  for (size_t symbol = 0; symbol < used.size(); ++symbol)
    if (program.symbols[symbol].kind == tile::SymbolKind::kLane) lanes.push_back(static_cast<Symbol>(symbol));
  const bool full_rank = tile::maps_and_folds(program);
  const LaneDimensions dimensions = lane_dimensions(program);
  for (Symbol lane : lanes)
    if (used[lane])
      lines.push_back(fmt::format("{} = tl.arange(0, {}){}", program.symbols[lane].name, tile::width_of(program, lane),
                                  full_rank ? dimensions.brackets(lane) : ""));
  return lines;
}

std::string with_symbols_in_place(const tile::Program& program, const std::string& source) {
  std::vector<std::string> lines = split_lines(source);
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  // Where the symbol stands in a line, not as a part of another name.
  const auto places_in = [&](const std::string& line, const std::string& name) {
    std::vector<size_t> places;
    for (size_t at = line.find(name); at != std::string::npos; at = line.find(name, at + 1)) {
      const size_t end = at + name.size();
      const bool begins = at == 0 || (!is_letter(line[at - 1]) && line[at - 1] != '.');
      if (begins && (end == line.size() || (!is_letter(line[end]) && line[end] != '='))) places.push_back(at);
    }
    return places;
  };
  for (const tile::SymbolInfo& symbol : program.symbols) {
    const std::string head = "    " + symbol.name + " = tl.";
    const auto definition = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.starts_with(head + "program_id(") || line.starts_with(head + "arange(");
    });
    if (definition == lines.end()) continue;
    const std::string text = definition->substr(head.size() - 3);
    std::string* user = nullptr;
    size_t uses = 0;
    for (std::string& line : lines) {
      if (&line == &*definition || line.starts_with("    \"\"\"") || line.starts_with("def ")) continue;
      const size_t here = places_in(line, symbol.name).size();
      if (here > 0) user = &line;
      uses += here;
    }
    if (uses != 1 || user->starts_with("     ")) continue;  // in a loop it would be computed again
    user->replace(places_in(*user, symbol.name)[0], symbol.name.size(), text);
    lines.erase(definition);
  }
  return join(lines, "\n") + "\n";
}

std::vector<int64_t> grid_of(const tile::Program& program) {
  std::vector<int64_t> counts;
  for (Symbol symbol : program.grid) {
    const auto number = kernel::as_constant(program.symbols[symbol].count);
    KW_ASSERT(number, "the grid of '" + program.name + "' hangs on run-time sizes");
    counts.insert(counts.begin(), *number);
  }
  if (counts.empty() || has_own_dimensions(program)) return counts.empty() ? std::vector<int64_t>{1} : counts;
  return {std::accumulate(counts.begin(), counts.end(), int64_t{1}, std::multiplies<>())};
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
  const bool apart = counts.size() > 1 && has_own_dimensions(program);
  std::reverse(counts.begin(), counts.end());
  const std::string blocks = counts.empty() ? "1" : join(counts, apart ? ", " : " * ");
  return fmt::format("def launch_{0}({1}):\n{4}    blocks = {2}\n    if {5}:\n        {0}[{6}]({1}, {3})\n",
                     program.name, join(parameters, ", "), blocks, options, memory, apart ? "all(blocks)" : "blocks",
                     apart ? "blocks" : "(blocks,)");
}

}  // namespace kw::triton
