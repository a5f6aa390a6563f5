// What a printed tile program calls its blocks and lanes: lines at its beginning, or calls where they are used.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tile/program.hpp"

namespace kw::triton {

class IndexText;

// A number of blocks and its text, to be multiplied with.
std::string factor_text(const tile::Index& index, const std::string& text);

// tl.program_id(…) or tl.arange(…), where that is all that a block's or a lane's number is.
std::optional<std::string> symbol_call(const tile::Program& program, tile::Symbol symbol);

// What makes tiles from nothing: "tl", or "gl" where blocks are consumers, which are printed in Gluon.
std::string_view language_of(const tile::Program& program);

// Lines that set a block's places from its number, which the launch gives it, or a ticket; a loop counts where programs
// do several groups of blocks. Those that say which of the blocks that run as one it is are apart.
std::vector<std::string> place_lines(const tile::Program& program, const IndexText& indices);
std::vector<std::string> consumer_lines(const tile::Program& program, const IndexText& indices);

// Lines that set the program's grid symbols, and the lanes that its indices name.
std::vector<std::string> symbol_lines(const tile::Program& program, const IndexText& indices);

// Where a value with lanes `own` stands among `lanes`: "[:, None]"; empty where nothing is to be said.
std::string brackets(const std::vector<tile::Symbol>& own, const std::vector<tile::Symbol>& lanes);

}  // namespace kw::triton
