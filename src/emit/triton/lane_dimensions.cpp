#include "emit/triton/lane_dimensions.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/text.hpp"

namespace kw::triton {

using tile::Symbol;

namespace {

// A dimension more, behind the others, which only what is stacked has.
bool is_stacked(const tile::Program& program, Symbol lane) { return program.symbols[lane].dimension == program.rank; }

bool has_stacked(const tile::Program& program, const std::vector<Symbol>& lanes) {
  return std::any_of(lanes.begin(), lanes.end(), [&](Symbol lane) { return is_stacked(program, lane); });
}

}  // namespace

std::string shape_of(const tile::Program& program, const std::vector<Symbol>& lanes) {
  std::vector<std::string> sizes(static_cast<size_t>(program.rank) + has_stacked(program, lanes), "1");
  for (Symbol lane : lanes)
    sizes[static_cast<size_t>(program.symbols[lane].dimension)] = std::to_string(tile::width_of(program, lane));
  return "(" + join(sizes, ", ") + (sizes.size() == 1 ? ",)" : ")");
}

std::string brackets(const tile::Program& program, Symbol lane) {
  std::vector<std::string> marks(static_cast<size_t>(program.rank) + is_stacked(program, lane), "None");
  if (marks.size() == 1) return "";
  marks[static_cast<size_t>(program.symbols[lane].dimension)] = ":";
  return "[" + join(marks, ", ") + "]";
}

std::string spread(const tile::Program& program, const std::vector<Symbol>& own, const std::vector<Symbol>& lanes) {
  if (own.empty() || !has_stacked(program, lanes) || has_stacked(program, own)) return "";
  std::vector<std::string> marks(static_cast<size_t>(program.rank), ":");
  marks.emplace_back("None");
  return "[" + join(marks, ", ") + "]";
}

}  // namespace kw::triton
