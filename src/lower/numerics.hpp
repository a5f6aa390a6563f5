// How exactly a GPU's kernels compute each operation: fast forms where a few places of the last digit do not matter,
// correctly rounded quotients where a step follows, and the usual form of the target's language elsewhere.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Gives operations in f32 their `exactness`, and operations whose operands are known not to be negative that word. Sets
// `contracts` where products and their sums may be rounded once. In programs that only map and fold, a quotient by a
// number becomes a product with its reciprocal.
void decide_numerics(tile::Program& program);

}  // namespace kw::lower
