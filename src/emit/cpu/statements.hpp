// What a kernel's function does, as C++: the constants and the loops of one part.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "emit/cpu/helper_sections.hpp"
#include "emit/cpu/parts.hpp"

namespace kw::cpu {

// Which nests of loops, in the order in which they run, read and write each buffer. A nest reads what it computes in an
// iteration before it stores it.
struct Touches {
  int nest = 0;
  std::map<int, std::set<int>> reads, writes;  // by buffer
};

// `buffers` becomes the names of the function's parameters, the same for all kernels with the same buffers.
std::string print_statements(const Part& part, HelperSet& helpers, std::vector<std::string>& buffers, Touches& touches);

}  // namespace kw::cpu
