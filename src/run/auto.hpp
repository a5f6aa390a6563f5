// The compiler and a language model on one problem: the better of what both can prove.
#pragma once

#include "run/generate.hpp"
#include "run/optimize.hpp"

namespace kw {

// optimize() first, so that its answer is there whatever becomes of the model; then generate(), whose best takes its
// place where it is faster beyond both intervals, or where nothing else passed; with edits one optimize() whose search
// goes on with the model's picks. The report is the winner's, with "proposers" and "winner" (docs/json.md). What ends
// the model's run early is told there and does not cost the compiler's answer. Of `model`, what OptimizeOptions has too
// is taken from there. With `shared`, those threads and the model they have loaded are used.
Report optimize_with_model(const OptimizeOptions& options, const GenerateOptions& model, Progress& progress,
                           class SamplingThreads* shared = nullptr);

}  // namespace kw
