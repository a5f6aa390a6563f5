#include "emit/triton/tile_symbols.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emit/triton/lane_dimensions.hpp"
#include "emit/triton/index_text.hpp"
#include "support/text.hpp"

namespace kw::triton {

using tile::Symbol;

namespace {

constexpr int64_t kGridLimit = 65535;  // of the second and third dimension of a CUDA grid

std::vector<Symbol> all_lanes(const tile::Program& program) {
  std::vector<Symbol> lanes;
  for (size_t symbol = 0; symbol < program.symbols.size(); ++symbol)
    if (program.symbols[symbol].kind == tile::SymbolKind::kLane) lanes.push_back(static_cast<Symbol>(symbol));
  return lanes;
}

class GridLines {
 public:
  GridLines(const tile::Program& program, const IndexText& indices) : program_(program), indices_(indices) {}

  std::vector<std::string> run() {
    if (program_.grid.empty()) return {};
    if (has_own_dimensions(program_)) {
      for (size_t place = 0; place < program_.grid.size(); ++place)
        if (!indices_.is_in_place(program_.grid[place]))
          line(fmt::format("{} = {}", name(program_.grid[place]), *symbol_call(program_, program_.grid[place])));
      return std::move(lines_);
    }
    std::string rest = program_name(indices_);
    if (program_.tickets >= 0) {
      line("# Numbered as they begin, so that those that wait for each other run together.");
      line(fmt::format("{} = tl.atomic_add({}, 1, sem=\"relaxed\")", rest, program_.buffers[program_.tickets].name));
    } else if (program_.consumers.programs == 0) {
      line(fmt::format("{} = tl.program_id(0)", rest));
    }
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
      const auto blocks = kernel::as_constant(number(slower[place]));
      faster = blocks && faster > 0 ? faster * *blocks : 0;
      const bool single = faster > 0 && all.find(' ') == std::string::npos;
      rest = single ? fmt::format("{} // {}", all, faster) : fmt::format("{} // {}", left, count(slower[place]));
    }
    return std::move(lines_);
  }

 private:
  void line(std::string text) { lines_.push_back(std::move(text)); }
  bool is_group(Symbol symbol) const { return program_.consumers.count > 1 && program_.consumers.along == symbol; }
  std::string name(Symbol symbol) const {
    return is_group(symbol) ? group_name(program_, symbol) : program_.symbols[symbol].name;
  }
  tile::Index number(Symbol symbol) const {
    return is_group(symbol) ? tile::Index(groups_along(program_, symbol)) : program_.symbols[symbol].count;
  }
  std::string count(Symbol symbol) const {
    const tile::Index index = number(symbol);
    return factor_text(index, indices_.spelled(index, {}));
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
    const auto all_rows = kernel::as_constant(number(program_.order.grouped));
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
  const IndexText& indices_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string program_name(const IndexText& indices) {
  std::string name = "program";
  while (indices.is_taken(name)) name += "_id";
  return name;
}

std::string_view language_of(const tile::Program& program) { return program.consumers.count > 1 ? "gl" : "tl"; }

std::string group_name(const tile::Program& program, Symbol along) { return program.symbols[along].name + "_pair"; }

int64_t groups_along(const tile::Program& program, Symbol along) {
  return kernel::as_constant(program.symbols[along].count).value() / program.consumers.count;
}

// Beside folds and products remainders of one number say more to
// the compiler: depthwise convolutions take half the registers.
bool has_own_dimensions(const tile::Program& program) {
  if (program.consumers.count > 1 || program.tickets >= 0) return false;
  if (program.grid.size() == 1) return true;
  if (!tile::maps_and_folds(program) || program.grid.size() > 3 || program.order.grouped >= 0) return false;
  const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program);
  return std::all_of(program.grid.begin(), program.grid.end(), [&](Symbol symbol) {
    return symbol == program.grid.back() || kernel::range_of(program.symbols[symbol].count, ranges).high <= kGridLimit;
  });
}

std::string factor_text(const tile::Index& index, const std::string& text) {
  return kernel::as_constant(index) || kernel::as_symbol(index) ? text : "(" + text + ")";
}

std::string brackets(const std::vector<Symbol>& own, const std::vector<Symbol>& lanes) {
  if (own.empty() || own == lanes) return "";
  std::vector<std::string> marks;
  for (Symbol lane : lanes) marks.emplace_back(std::find(own.begin(), own.end(), lane) == own.end() ? "None" : ":");
  return "[" + join(marks, ", ") + "]";
}

namespace {

// So far alone addresses are aligned. Contiguity stays: without it Triton lays tiles out in the order of declaration,
// and threads side by side read apart (three adaptive poolings of 1.4 GB: 1.62 ms for 1.49 on an H100).
std::string lane_text(const tile::Program& program, Symbol lane) {
  const std::string points = fmt::format("{}.arange(0, {})", language_of(program), tile::width_of(program, lane));
  const int64_t vectors = program.symbols[lane].vectors;
  return vectors > 0 ? fmt::format("tl.multiple_of({}, {})", points, vectors) : points;
}

}  // namespace

std::optional<std::string> symbol_call(const tile::Program& program, Symbol symbol) {
  if (program.symbols[symbol].kind == tile::SymbolKind::kLane)
    return lane_text(program, symbol) +
           (tile::maps_and_folds(program) ? lane_dimensions(program).brackets(symbol) : "");
  const auto place = std::find(program.grid.begin(), program.grid.end(), symbol);
  if (place == program.grid.end() || !has_own_dimensions(program)) return std::nullopt;
  return fmt::format("tl.program_id({})", program.grid.end() - 1 - place);
}

std::vector<std::string> grid_lines(const tile::Program& program, const IndexText& indices) {
  return GridLines(program, indices).run();
}

std::vector<std::string> symbol_lines(const tile::Program& program, const IndexText& indices) {
  std::vector<std::string> lines = grid_lines(program, indices);
  std::vector<bool> used(program.symbols.size());
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    if (one.kind == tile::Kind::kDefine) collect_symbols(program.symbols[one.symbol].value, used);
    collect_symbols(one.index, used);
    if (one.mode == tile::CopyMode::kPlain)
      for (const tile::Coordinate& coordinate : one.access.coordinates) collect_symbols(coordinate.index, used);
    const bool finds_place = one.reduce == tile::ReduceOp::kArgMax || one.reduce == tile::ReduceOp::kArgMin;
    if (one.kind == tile::Kind::kFold && finds_place)
      for (Symbol lane : one.lanes) used[lane] = true;
  });
  for (Symbol lane : all_lanes(program))
    if (used[lane] && !indices.is_in_place(lane))
      lines.push_back(fmt::format("{} = {}", program.symbols[lane].name, *symbol_call(program, lane)));
  return lines;
}

}  // namespace kw::triton
