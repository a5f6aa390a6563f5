#include "lower/counted_down.hpp"

#include <algorithm>
#include <string>

namespace kw::lower {
namespace {

std::string unused_name(const tile::Program& program, std::string name) {
  const auto is_taken = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
  };
  while (is_taken(program.symbols) || is_taken(program.buffers) || is_taken(program.values)) name += "_";
  return name;
}

}  // namespace

void count_reversed_loops(tile::Program& program) {
  std::vector<tile::SymbolInfo> counters;
  const auto first = static_cast<tile::Symbol>(program.symbols.size());
  tile::for_each_mutable(program.body, [&](tile::Instruction& one) {
    if (one.kind != tile::Kind::kFor || !one.reversed) return;
    const tile::Index count = tile::iterations_of(program, one);
    counters.push_back({.name = unused_name(program, program.symbols[one.symbol].name + "_number"),
                        .kind = tile::SymbolKind::kLoop,
                        .range = tile::loop_range(0, count, 1, tile::ranges_of(program)),
                        .count = count});
    one.counter = first + static_cast<tile::Symbol>(counters.size()) - 1;
  });
  program.symbols.insert(program.symbols.end(), counters.begin(), counters.end());
}

}  // namespace kw::lower
