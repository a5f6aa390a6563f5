// A step of the Triton target: names that Python has no other use for.
#pragma once

#include "tile/program.hpp"

namespace kw::triton {

// Other names where Python or a helper (helpers.hpp) has its own: `abs` becomes `magnitude`.
void give_python_names(tile::Program& program);

}  // namespace kw::triton
