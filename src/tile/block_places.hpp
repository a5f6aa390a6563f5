// The places of blocks in the grid, where a launch only counts them: from the number of a block, in the order in which
// blocks begin, to its position along each dimension.
//
// Blocks begin in the program's order: the last dimension of the grid varies fastest, or (GridOrder) `count` rows of
// blocks go column by column, and then the next ones:
//
//   first_row = number / (count · columns) · count        the first of the group of rows
//   grouped_row = min(rows - first_row, count)            how many rows the group has: the last may have fewer
//   row = first_row + number % (count · columns) % grouped_row
//   column = number % (count · columns) / grouped_row
//
// Where the counts are numbers, what they show is simplified: a group that is never cut short has `count` rows.
// So the grid's symbols stay what they are, positions that no two blocks share, whatever says how they are found.
#pragma once

#include <string>

#include "tile/program.hpp"

namespace kw::tile {

// Blocks along a dimension of the grid, those that run as one counted once.
Index launched_along(const Program& program, Symbol symbol);

// Gives the program its places; `number` is what the number of a block is called, if nothing else is. The program has
// none, and a grid.
void place_blocks(Program& program, const std::string& number);

// The number of blocks, and which of those that run as one a block is, in a program with places; −1: it has no such.
Symbol number_of_block(const Program& program);
Symbol number_of_consumer(const Program& program);

// What is wrong with the program's places, if they are not those that `place_blocks` gives; empty: nothing.
std::string fault_of_places(const Program& program);

}  // namespace kw::tile
