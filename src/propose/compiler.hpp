// The C++ compiler that candidates for the CPU are compiled with.
#pragma once

#include <string>

namespace kw {

// The one that an emitted file would find: $CXX, else c++, g++ or clang++ on PATH. Empty when there is none.
std::string find_compiler();

void need_compiler();  // throws kMissing when there is none

}  // namespace kw
