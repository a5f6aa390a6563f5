// What the parameters of this target's schedulers decide, in words.
#pragma once

#include <string_view>

namespace kw::triton {

std::string_view meaning_of(std::string_view parameter);  // empty: nothing is said

}  // namespace kw::triton
