// Consumers multiply while they compute: products run by themselves until somebody wants their sum.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// In the loop of a program that has consumers, products and what they need stand first, then what does not wait for
// them, and what does last.
void put_products_first(tile::Program& program);

}  // namespace kw::lower
