// A problem file and a language model in; the best verified one of k candidates and a report of all of them out
// (docs/llm.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "propose/generate_options.hpp"
#include "run/report.hpp"
#include "support/error.hpp"
#include "support/progress.hpp"

namespace kw {

struct GenerateOutcome {
  Report report;
  std::optional<Error> fault;  // what ended the run early, such as a server that is gone
  bool interrupted = false;
  std::string kept;  // then: what is left of the work, in words
};

// The first verified candidate is written as soon as there is one, the best once they are timed. Every completion is in
// the archive the moment it came, every verdict the moment it was given; the same options go on from there. Throws
// kw::Error for what ends a run before its first sample. With `shared`, those threads and the model they have loaded
// are used; after a fault or an interrupt they are of no more use.
GenerateOutcome generate(const GenerateOptions& options, Progress& progress, class SamplingThreads* shared = nullptr);

// What generate() would send first, without asking the model: `prompt`, whose tokens are estimated; with edits also
// `grammar` and `schema` of the answer.
nlohmann::ordered_json prompt_for(const GenerateOptions& options, Progress& progress);

}  // namespace kw
