// Prints a tile program as a C++ function whose threads run the blocks of the grid. What a CPU has to decide, its steps
// of lowering have decided (targets/cpu/lowering.hpp): this is spelling.
#pragma once

#include <string>

#include "emit/runtime/cpu/helper_sections.hpp"
#include "lower/pipeline.hpp"
#include "tile/program.hpp"

namespace kw::cpu {

struct PrintedTile {
  // extern "C" NAME(buffers…, sizes as int64_t…, int threads)
  std::string text;
  bool takes_threads = false;    // the last parameter is there: its grid has several dimensions' worth of blocks
  bool refuses_indices = false;  // it returns null, or an index that PyTorch would refuse and the size of its dimension
};

// Of a program with its loops. Adds the helpers that the function calls. Throws kInternal for what has no C++ form:
// memory and barriers of several blocks, scans of places and those in an order of their own.
PrintedTile print_tile_function(const lower::Lowered& lowered, HelperSet& helpers);

// What print_tile_function says of the function.
size_t pointer_count(const tile::Program& program);
bool takes_threads(const tile::Program& program);
bool refuses_indices(const tile::Program& program);

// Throws kInternal: the program asks for what this target does not have.
[[noreturn]] void refuse_tile(const tile::Program& program, const std::string& what);

}  // namespace kw::cpu
