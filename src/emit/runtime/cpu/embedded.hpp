// Text files of this folder, put into the program at build time (CMakeLists.txt).
#pragma once

#include <string_view>

namespace kw::cpu {

extern const std::string_view kVectorMathText;
extern const std::string_view kScalarMathText;
extern const std::string_view kSortRowsText;
extern const std::string_view kTileMathText;
extern const std::string_view kLoaderText;

}  // namespace kw::cpu
