// Loads of what other blocks write meanwhile.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Where blocks wait for each other, loads of what is no input are `coherent`: a multiprocessor's own cache may hold it
// as it was before.
void make_loads_coherent(tile::Program& program);

}  // namespace kw::lower
