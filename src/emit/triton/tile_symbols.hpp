// What a printed tile program calls its blocks and lanes: lines at its beginning, or calls where they are used.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tile/program.hpp"

namespace kw::triton {

class IndexText;

// Is each of the grid's dimensions one of the launch's?
bool has_own_dimensions(const tile::Program& program);

// A number of blocks and its text, to be multiplied with.
std::string factor_text(const tile::Index& index, const std::string& text);

// tl.program_id(…) or tl.arange(…), where that is all that a block's or a lane's number is.
std::optional<std::string> symbol_call(const tile::Program& program, tile::Symbol symbol);

// What makes tiles from nothing: "tl", or "gl" where blocks are consumers, which are printed in Gluon.
std::string_view language_of(const tile::Program& program);

// The groups of blocks that run as one, along a dimension whose blocks are consumers: "row_block_pair", and how many.
std::string group_name(const tile::Program& program, tile::Symbol along);
int64_t groups_along(const tile::Program& program, tile::Symbol along);

// What counts a grid's blocks: "program".
std::string program_name(const IndexText& indices);

// Lines that set the program's grid symbols from tl.program_id; of consumers, the number of their group. Where programs
// do several groups, from that of one, which a loop counts.
std::vector<std::string> grid_lines(const tile::Program& program, const IndexText& indices);

// Lines that set the program's grid symbols from tl.program_id, and the lanes that its indices name.
std::vector<std::string> symbol_lines(const tile::Program& program, const IndexText& indices);

// Where a value with lanes `own` stands among `lanes`: "[:, None]"; empty where nothing is to be said.
std::string brackets(const std::vector<tile::Symbol>& own, const std::vector<tile::Symbol>& lanes);

}  // namespace kw::triton
