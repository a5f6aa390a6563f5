// Cooperative folds: of rows that several blocks share, each of which holds a part. Every block folds its own part,
// stores what comes of it where the others of its row find it, waits for them, and folds what all of them stored, in
// one order. So a row that no block could hold is read once, and all its blocks have the same results.
#pragma once

#include <vector>

#include "lower/values.hpp"

namespace kw::lower {

// Throws kUser that names what no blocks can share: folds other than sums, products, extremes, moments and sums of
// exponentials in f32 or f64, all in the same, and folds over some but not all of the axes whose blocks share rows.
void refuse_cooperative_folds(const Values& values);

// Folds all that these need over axes whose blocks share rows; what does not wait for each other, together. Their
// values are known then. Nothing may be looped over.
void fold_shared_rows(Values& values, const std::vector<kernel::ExprId>& roots);

}  // namespace kw::lower
