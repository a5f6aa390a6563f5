// The head of a loop in Triton.
#pragma once

#include <string>

#include "emit/triton/index_text.hpp"
#include "tile/program.hpp"

namespace kw::triton {

struct LoopHead {
  std::string line;   // "for row in tl.range(0, 4096, 64, num_stages=3):"
  std::string start;  // of the body: sets the loop's variable, where another one is counted; empty: nothing
};

// In order, or reversed: then its counter goes down. `until`: the text of the value that may end it earlier.
LoopHead loop_head(const tile::Program& program, const tile::Instruction& loop, const IndexText& indices,
                   const std::string& until = "");

}  // namespace kw::triton
