// A problem file and a language model that picks schedules in; the best of the compiler's kernels under k schedules and
// a report out (docs/llm.md).
#pragma once

#include <memory>

#include "run/generate.hpp"

namespace kw {

struct OptimizeOptions;

// The picks of one model for one problem, as a part of optimize().
class EditRun {
 public:
  // `shared`: threads with a model that is loaded already, or nullptr.
  EditRun(const GenerateOptions& options, class SamplingThreads* shared);
  ~EditRun();

  // Until `samples` schedules have been evaluated, the one it begins with as the first. Both options must outlive
  // optimize().
  void join(OptimizeOptions& settings);
  // The model, its answers and the edits into `report`, from what optimize() has found and what was heard on the way.
  // Frees the model.
  void describe(Report& report, const Searches& found);
  const std::optional<Error>& fault() const;

 private:
  struct State;
  const GenerateOptions& options_;
  std::unique_ptr<State> state_;
};

// generate() with `edits`: the compiler's own schedule is verified, written and counted as the first evaluation;
// answers are evaluated beside it until there are `samples`, each verified before it is timed. `--model search` is the
// compiler's best-first search under the same count.
GenerateOutcome generate_edits(const GenerateOptions& options, Progress& progress, class SamplingThreads* shared);

// What the model would be sent first, and the form of its answers: prompt, grammar, schema.
nlohmann::ordered_json edit_prompt_for(const GenerateOptions& options, Progress& progress);

}  // namespace kw
