// The helper functions that a kernel may call, as C++ text: cut from vector_math.h and scalar_math.h, so that an
// emitted file holds only what it uses.
#pragma once

#include <set>
#include <string>

namespace kw::cpu {

// Names as in the `//@` markers ("exp", "maximum").
using HelperSet = std::set<std::string>;

bool has_helper(const std::string& name);

// The text of `names` and of all they need, in an order that compiles.
std::string helper_text(const HelperSet& names);

// Headers, helpers and functions: a whole C++ file.
std::string cpp_file(const std::string& functions, const HelperSet& helpers);

}  // namespace kw::cpu
