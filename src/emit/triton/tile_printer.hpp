// Prints a tile program as a @triton.jit function. Everything is decided already: this is spelling.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "tile/program.hpp"

namespace kw::triton {

struct TileKernel {
  std::string source;             // the function
  std::string launch;             // a Python function `launch_NAME(buffers…, sizes…)` that runs it on the whole grid
  std::set<std::string> helpers;  // what it calls of helpers.hpp
};

// Throws kInternal for what Triton cannot say: shared memory of one's own, barriers wider than a block, dots over
// several lanes.
TileKernel print_tile_kernel(const tile::Program& program);

// Does it read through windows, whose descriptions need memory (triton.set_allocator)?
bool has_windows(const tile::Program& program);

// Does it access that buffer through one? The bulk copy engine needs its address divisible by 16.
bool has_window_on(const tile::Program& program, int buffer);

// Does it convert 8-bit floats? Its last parameter, kHardwareFloat8Constant (helpers.hpp), says whether the hardware
// does.
bool converts_float8(const tile::Program& program);

// Sizes of the launch of a program whose grid does not depend on run-time sizes, the first varying fastest.
std::vector<int64_t> grid_of(const tile::Program& program);
int64_t blocks_of(const tile::Program& program);  // in all
// Multiprocessors on which all blocks that share a row are sure to run at once: two blocks of four warps on each, whose
// threads may take 255 registers.
int64_t multiprocessors_for_row(const tile::Program& program);

// A whole Python file: imports, helpers, the kernel and its launch.
std::string print_tile_module(const tile::Program& program);

}  // namespace kw::triton
