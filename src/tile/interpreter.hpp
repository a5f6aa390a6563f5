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

// Runs all blocks, one after the other, and returns the memory as it is left: outputs and in-out buffers with their new
// elements, and what was never written NaN (integers: the smallest). Sizes are given by name.
// Throws kUser where a buffer or size is missing or has the wrong number of elements; kInternal where an access leaves
// its buffer, or where two blocks write different values to one element (unless by a combining store).
Memory interpret(const Program& program, const Memory& memory, const std::map<std::string, int64_t>& sizes = {},
                 Arithmetic arithmetic = Arithmetic::kAsTyped);

}  // namespace kw::tile
