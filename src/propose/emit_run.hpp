// Schedules that somebody proposes, for a device that is not here: emitted and compiled, and ordered by the cost model
// alone.
#pragma once

#include <memory>
#include <string>

#include "archive/archive.hpp"
#include "judge/session.hpp"
#include "propose/compile.hpp"
#include "propose/search_run.hpp"
#include "support/scratch.hpp"

namespace kw {

struct EmitRequest {
  int evaluations = 0;
  std::shared_ptr<const MakeProposer> proposer;  // none: best-first
  uint64_t search_seed = 0;
  CompileOptions compile;
  std::string problem_hash, environment_hash;
  int capability = 0;  // that kernels are compiled for; 0: not compiled
};

// Ratios are expectations. Nothing takes the first schedule's place: nothing was run.
SearchOutcome emit_schedules(const EmitRequest& request, const Compiled& first, Session& session, Archive& archive,
                             Scratch& scratch);

}  // namespace kw
