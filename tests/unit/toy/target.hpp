// A target of the tests: kernels that are plain Python loops. Its folder and the line that hands it to the compiler are
// all that it takes.
#pragma once

#include "target/target.hpp"

namespace kw {

const Target& toy_target();

}  // namespace kw
