// The text files of prompts/, put into the program at build time (CMakeLists.txt).
#pragma once

#include <string_view>

namespace kw::triton {

extern const std::string_view kForm, kExample;

}  // namespace kw::triton
