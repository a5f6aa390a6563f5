#include "emit/triton/tile_symbols.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emit/triton/lane_dimensions.hpp"
#include "emit/triton/index_text.hpp"
#include "emit/triton/tile_notes.hpp"
#include "support/text.hpp"
#include "tile/block_places.hpp"

namespace kw::triton {

using tile::Symbol;
using tile::SymbolKind;

namespace {

std::string line_of(const tile::Program& program, const IndexText& indices, Symbol place) {
  return fmt::format("{} = {}", program.symbols[place].name, indices.spelled(program.symbols[place].value, {}));
}

bool is_of_consumer(const tile::Program& program, Symbol place) {
  const Symbol consumer = tile::number_of_consumer(program);
  return consumer >= 0 && kernel::uses(program.symbols[place].value, consumer);
}

std::vector<std::string> number_lines(const tile::Program& program) {
  const std::string& number = program.symbols[tile::number_of_block(program)].name;
  if (program.tickets >= 0)
    return {"# Numbered as they begin, so that those that wait for each other run together.",
            fmt::format("{} = tl.atomic_add({}, 1, sem=\"relaxed\")", number, program.buffers[program.tickets].name)};
  if (program.consumers.programs > 0) return {};
  return {fmt::format("{} = tl.program_id(0)", number)};
}

// So far alone addresses are aligned. Contiguity stays: without it Triton lays tiles out in the order of declaration,
// and threads side by side read apart (three adaptive poolings of 1.4 GB: 1.62 ms for 1.49 on an H100).
std::string lane_text(const tile::Program& program, Symbol lane) {
  const std::string points = fmt::format("{}.arange(0, {})", language_of(program), tile::width_of(program, lane));
  const int64_t vectors = program.symbols[lane].vectors;
  return vectors > 0 ? fmt::format("tl.multiple_of({}, {})", points, vectors) : points;
}

}  // namespace

std::string_view language_of(const tile::Program& program) { return program.consumers.count > 1 ? "gl" : "tl"; }

std::string factor_text(const tile::Index& index, const std::string& text) {
  return kernel::as_constant(index) || kernel::as_symbol(index) ? text : "(" + text + ")";
}

std::string brackets(const std::vector<Symbol>& own, const std::vector<Symbol>& lanes) {
  if (own.empty() || own == lanes) return "";
  std::vector<std::string> marks;
  for (Symbol lane : lanes) marks.emplace_back(std::find(own.begin(), own.end(), lane) == own.end() ? "None" : ":");
  return "[" + join(marks, ", ") + "]";
}

std::optional<std::string> symbol_call(const tile::Program& program, Symbol symbol) {
  if (program.symbols[symbol].kind == SymbolKind::kLane)
    return lane_text(program, symbol) + (program.rank >= 0 ? brackets(program, symbol) : "");
  if (program.symbols[symbol].kind != SymbolKind::kGrid || !program.places.empty()) return std::nullopt;
  const auto place = std::find(program.grid.begin(), program.grid.end(), symbol);
  return fmt::format("tl.program_id({})", program.grid.end() - 1 - place);
}

std::vector<std::string> place_lines(const tile::Program& program, const IndexText& indices) {
  std::vector<std::string> lines;
  if (!program.places.empty()) lines = number_lines(program);
  if (const std::string note = note_of_places(program); !note.empty()) lines.push_back(note);
  for (Symbol place : program.places)
    if (!is_of_consumer(program, place)) lines.push_back(line_of(program, indices, place));
  return lines;
}

std::vector<std::string> consumer_lines(const tile::Program& program, const IndexText& indices) {
  std::vector<std::string> lines;
  for (Symbol place : program.places)
    if (is_of_consumer(program, place)) lines.push_back(line_of(program, indices, place));
  return lines;
}

std::vector<std::string> symbol_lines(const tile::Program& program, const IndexText& indices) {
  std::vector<std::string> lines = place_lines(program, indices);
  std::vector<bool> used(program.symbols.size());
  for (Symbol block : program.grid) used[block] = program.places.empty();
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    if (one.kind == tile::Kind::kDefine) collect_symbols(program.symbols[one.symbol].value, used);
    collect_symbols(one.index, used);
    if (one.mode == tile::CopyMode::kPlain)
      for (const tile::Coordinate& coordinate : one.access.coordinates) collect_symbols(coordinate.index, used);
    const bool finds_place = one.reduce == tile::ReduceOp::kArgMax || one.reduce == tile::ReduceOp::kArgMin;
    if (one.kind == tile::Kind::kFold && finds_place)
      for (Symbol lane : one.lanes) used[lane] = true;
  });
  const auto set = [&](Symbol symbol) {
    if (used[symbol] && !indices.is_in_place(symbol))
      lines.push_back(fmt::format("{} = {}", program.symbols[symbol].name, *symbol_call(program, symbol)));
  };
  if (program.places.empty())
    for (Symbol block : program.grid) set(block);
  for (size_t symbol = 0; symbol < program.symbols.size(); ++symbol)
    if (program.symbols[symbol].kind == SymbolKind::kLane) set(static_cast<Symbol>(symbol));
  return lines;
}

}  // namespace kw::triton
