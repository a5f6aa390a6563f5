// What a kernel's function does, as C++: the constants and the loops of one part.
#pragma once

#include <string>
#include <vector>

#include "emit/cpu/helper_sections.hpp"
#include "emit/cpu/parts.hpp"

namespace kw::cpu {

// `buffers` becomes the names of the function's parameters, the same for all kernels with the same buffers.
std::string print_statements(const Part& part, HelperSet& helpers, std::vector<std::string>& buffers);

}  // namespace kw::cpu
