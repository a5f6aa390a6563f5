// The text files of templates/, put into the program at build time (CMakeLists.txt).
#pragma once

#include <string_view>

namespace kw::llm {

// By file name ("chat.txt"); empty when there is none.
std::string_view embedded_text(std::string_view file);

}  // namespace kw::llm
