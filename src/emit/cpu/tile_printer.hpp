// Prints a tile program as a C++ function whose threads run the blocks of the grid. What a CPU has to decide,
// lower::plan_loops has decided: this is spelling.
#pragma once

#include <string>

#include "emit/cpu/helper_sections.hpp"
#include "tile/program.hpp"

namespace kw::cpu {

struct PrintedTile {
  // extern "C" NAME(buffers…, sizes as int64_t…, int threads)
  std::string text;
  bool takes_threads = false;    // the last parameter is there: its grid has several dimensions' worth of blocks
  bool refuses_indices = false;  // it returns null, or an index that PyTorch would refuse and the size of its dimension
};

// Adds the helpers that the function calls. Throws kInternal for what has no C++ form: memory and barriers of several
// blocks, sorts and scans of places.
PrintedTile print_tile_function(const tile::Program& program, HelperSet& helpers);

// Headers, helpers and functions: a whole C++ file.
std::string tile_source(const std::string& functions, const HelperSet& helpers);

}  // namespace kw::cpu
