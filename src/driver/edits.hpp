// A problem file and a language model that picks schedules in; the best of the compiler's kernels under k schedules and a report out (docs/llm.md).
#pragma once

#include "driver/generate.hpp"

namespace kw {

// generate() with `edits`: the compiler's own schedule is verified, written and counted as the first evaluation; answers are evaluated beside it until
// there are `samples`, each verified before it is timed. `--model search` is the compiler's best-first search under the same count.
GenerateOutcome generate_edits(const GenerateOptions& options, Progress& progress, class SamplingThreads* shared);

// What the model would be sent first, and the form of its answers: prompt, grammar, schema.
nlohmann::ordered_json edit_prompt_for(const GenerateOptions& options, Progress& progress);

}  // namespace kw
