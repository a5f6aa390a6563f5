// The search of one problem: the Evaluator that emits, builds, races and stores candidates.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "archive/archive.hpp"
#include "judge/session.hpp"
#include "propose/builder.hpp"
#include "propose/compile.hpp"
#include "propose/proposer.hpp"
#include "propose/search_outcome.hpp"
#include "search/memory.hpp"
#include "search/propose.hpp"
#include "search/search.hpp"
#include "support/progress.hpp"
#include "support/scratch.hpp"

namespace kw {

struct SearchRequest {
  std::string problem, size;  // path, and which of its SIZES
  std::string problem_hash, environment_hash, policy;
  std::string device;         // of the target's tensors
  double budget_seconds = 0;  // without `evaluations`
  int evaluations = 0;  // of schedules beside the first: a count instead of a time, and nothing remembered to begin
                        // with
  std::shared_ptr<const MakeProposer> proposer;  // none: best-first
  std::string proposed_by = "search";            // in the archive
  double verify_seconds = 0;                     // what verifying the first candidate took
  double last_try = 0;  // on the clock of seconds_now(): nothing is begun that would be verified after it; 0: none
  uint64_t seed = 0;
  int64_t input_bytes = 0;
  std::map<std::string, double> eager_errors;  // as MeasureRequest has them
  CompileOptions compile;
  std::vector<size_t> spilling;  // groups of the first candidate whose kernels spill registers: schedules that ask for
                                 // fewer are tried first
  bool only_relief = false;      // and no others
  // Verifies a better candidate and, when it passes, writes it where the user wants it.
  std::function<bool(Compiled)> accept;
  // Verifies any, before it is timed; empty, or what is wrong with it. accept() of the same one need not do it again.
  // None: only better ones are verified.
  std::function<std::string(const Compiled&)> check;
};

// `first` has been verified. What was found is kept by `accept` as it is found; Interrupted leaves as it came.
SearchOutcome search_schedules(const SearchRequest& request, const Compiled& first, Session& session,
                               const Environment& environment, Archive& archive, Scratch& scratch, Progress& progress);

}  // namespace kw
