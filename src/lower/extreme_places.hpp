// Folds that find the place of an extreme.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Makes `arg_max` and `arg_min` a maximum or minimum along which a position comes, counted from the last one down: of
// equal extremes the largest of what comes along counts, and that is the first place. Loops that share their points
// with other instructions can then fold them, and what they keep are values of the program.
void fold_places_along(tile::Program& program);

}  // namespace kw::lower
