// Tiles along an unrolled axis, taken apart into values of their own, one for each point. What two points, or two
// iterations of an unrolled loop, compute alike is then computed once: neighbouring windows share what they load.
#pragma once

#include <span>

#include "tile/program.hpp"

namespace kw::lower {

// The program without these lanes. Unrolled loops that compute along one of them become their iterations, one after the
// other. Throws kUser where an instruction needs such a lane whole: a dot, a scan, a fold by something else than one
// operation.
tile::Program take_apart(const tile::Program& program, std::span<const tile::Symbol> lanes);

}  // namespace kw::lower
