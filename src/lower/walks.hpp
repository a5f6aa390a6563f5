// Scans that are taken element by element: all rows of a block are walked side by side, so that their steps overlap.
// And what sorts read of memory.
#pragma once

#include <map>
#include <vector>

#include "tile/program.hpp"

namespace kw::lower {

// Does each step of the scan take one element more into what the walk has met so far? Its loops go along its lane
// first, and over the rows inside that. The others walk over their operand in loops of their own.
bool is_simple_scan(const tile::Instruction& instruction);

// Of a sort's operand: can its rows be read from where they lie in memory?
bool lies_in_rows(const tile::Program& program, const tile::Instruction& load, tile::Symbol along);

struct Walks {
  // The lane along which the loops of these go first: simple scans, and where what they come to is rounded.
  std::map<const tile::Instruction*, tile::Symbol> along;
  // [value] In programs with such scans, or sorts: read or converted again wherever it is needed. An array of it would
  // be written and read for that.
  std::vector<bool> is_repeated;
};
Walks find_walks(const tile::Program& program);

}  // namespace kw::lower
