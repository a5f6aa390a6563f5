// The text files of prompts/, put into the program at build time (CMakeLists.txt).
#pragma once

#include <string_view>

namespace kw::cpu {

extern const std::string_view kForm, kExample, kHelper;

}  // namespace kw::cpu
