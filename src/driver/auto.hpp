// The compiler and a language model on one problem: the better of what both can prove.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "driver/generate.hpp"
#include "driver/optimize.hpp"

namespace kw {

// optimize() first, so that its answer is there whatever becomes of the model; then generate(), whose best takes its place where it is faster
// beyond both intervals, or where nothing else passed. The report is the winner's, with "proposers" and "winner" (docs/json.md). What ends the
// model's run early is told there and does not cost the compiler's answer.
nlohmann::ordered_json optimize_with_model(const OptimizeOptions& options, GenerateOptions model, Progress& progress);

}  // namespace kw
