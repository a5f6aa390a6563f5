// The rules that every tile program keeps.
#pragma once

#include "tile/program.hpp"

namespace kw::tile {

// Throws kInternal that names the program, the instruction and the broken rule: values defined once and before their
// uses, in scope; operand numbers, types and lanes; carried values; masks; accesses within buffers wherever ranges show
// it; only output, in-out and scratch buffers are written; names that are identifiers, and unique.
void verify(const Program& program);
// The same answer as text; empty where all is well.
std::string find_fault(const Program& program);

}  // namespace kw::tile
