// Which loads of a program read the same elements in several loops, one after the other.
#pragma once

#include <vector>

#include "tile/program.hpp"

namespace kw::lower {

struct LoopLoad {
  tile::Instruction* load = nullptr;
  int loop = -1;                                 // which of the program's outermost loops; −1: none
  bool read_before = false, read_again = false;  // by another of these loops
};

// All loads, in order. Two are the same where their places are: from one buffer, by the same numbers of lanes, blocks
// and loops, and of what the data say, if that is loaded alike.
std::vector<LoopLoad> loads_in_loops(tile::Program& program);

}  // namespace kw::lower
