// The rules that every tile program keeps.
#pragma once

#include <optional>
#include <string_view>

#include "tile/lane_ends.hpp"
#include "tile/program.hpp"

namespace kw::tile {

// Throws kInternal that names the program, the instruction and the broken rule: values defined once and before their
// uses, in scope; operand numbers, types and lanes; carried values; masks; accesses within buffers wherever ranges show
// it; named indices without circles, at the start of a body, in a width that holds them; only output, in-out and
// scratch buffers are written, and no element by blocks whose values differ; names that are identifiers, and unique.
// Where lanes end, nothing is asked of accesses behind that, and tiles may be all alike along such a lane: masks are
// gone.
void verify(const Program& program, const LaneEnds& ends = {});
// The same answer as text; empty where all is well.
std::string find_fault(const Program& program, const LaneEnds& ends = {});

struct Fault {
  std::string message;   // the rule that is broken, and by what
  int instruction = -1;  // its place in the order of `for_each`; -1: a declaration
};
std::optional<Fault> first_fault(const Program& program, const LaneEnds& ends = {});

// Is it a word that a Python or a C++ file cannot use as a name?
bool is_keyword(std::string_view name);

// Are all the symbols that the index is made of in the program's table?
bool has_known_symbols(const Program& program, const Index& index);

}  // namespace kw::tile
