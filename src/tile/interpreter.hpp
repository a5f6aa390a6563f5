// Runs a tile program on the CPU, block after block: its meaning, for tests.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernel/scalar_values.hpp"
#include "tile/program.hpp"

namespace kw::tile {

enum class Arithmetic {
  kAsTyped,  // every result is rounded to its type; dots in tf32 round their operands
  kDouble,   // floating values are doubles throughout: what the program would compute if it did not round
};

// Buffers by name: inputs' elements in the order of memory, as doubles or, for integral types, as whole numbers.
using Memory = std::map<std::string, kernel::Numbers>;

// Runs all blocks and returns the memory as it is left: outputs and in-out buffers. Blocks go one after the other, or
// in step from barrier to barrier where the program has barriers of the grid or a cluster; all blocks are one cluster.
// A barrier of the blocks of a row lets each see what its own row wrote.
// Elements that are never written are NaN (whole numbers: the smallest), unless `memory` gives the output's or the
// scratch buffer's beginning. Sizes are given by name; the number of threads is 1 if it is not. Asynchronous copies
// arrive at the wait that lets them.
// Throws kUser where a buffer or size is missing, unknown, or has the wrong number of elements. Throws kInternal,
// naming the instruction and the values of the symbols, where
// - an access leaves its buffer,
// - two blocks, or two points of one store, write different values to one element (unless by combining stores),
// - a block reads what another wrote, with no barrier of both between,
// - two iterations that threads share store to one element in order,
// - shared memory is read after a store or plain copy, or written after a read, with no barrier between,
// - shared memory is read or written while an asynchronous copy to it is under way.
Memory interpret(const Program& program, const Memory& memory, const std::map<std::string, int64_t>& sizes = {},
                 Arithmetic arithmetic = Arithmetic::kAsTyped);

}  // namespace kw::tile
