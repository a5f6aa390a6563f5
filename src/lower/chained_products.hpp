// Sums of products as one sum: where the results of two products are added, the second is added up onto the first's.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

void chain_products(tile::Program& program);

}  // namespace kw::lower
