// Boxes: loads and stores that the bulk copy engine can do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tile/program.hpp"

namespace kw::tile {

// A box of a buffer's elements: from `origin` on, along each dimension the points of one lane (−1: a single one). Of
// those outside of the buffer, loads yield 0, and stores write nothing.
struct Box {
  std::vector<Index> origin;
  std::vector<Symbol> lanes;
};

// What an access without a mask reads or writes, as a box of a buffer in global memory; nullopt where it is none, or
// not one that the engine takes (on Hopper: rows of at least 16 bytes whose beginnings are aligned to 16, the innermost
// dimension dense, at most five dimensions of at most 256 points).
std::optional<Box> box_of(const Program& program, const Access& access);

}  // namespace kw::tile
