// A problem file in; a verified, measured candidate and its report out.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "propose/proposer.hpp"
#include "run/worth.hpp"
#include "support/progress.hpp"

namespace kw {

inline constexpr double kTimingSeconds = 10;

struct OptimizeOptions {
  std::string problem;          // path
  std::string output;           // path; empty: STEM_kw.py in the current folder
  std::string target = "auto";  // or a name of targets()
  std::string size;             // of the problem's SIZES; empty: the target's usual one
  std::string policy = "reference";
  std::string graphs = "auto";  // CUDA graphs: "auto", "on", "off" (propose/compile.hpp)
  std::vector<std::string> baselines = {"eager", "compile"};
  std::vector<std::string> disabled_passes;
  std::string schedule;          // path of a Schedule's JSON, in place of the planner's; empty: none
  double budget_seconds = 10;    // up to kTimingSeconds of timing, what is more of search; 0: verified but not measured
  double timeout_seconds = 600;  // of tracing, and of one verification
  int draws = 0;                 // 0: the worker's default
  std::optional<uint64_t> seed;
  double timing_seconds() const { return budget_seconds < kTimingSeconds ? budget_seconds : kTimingSeconds; }
  double search_seconds() const { return evaluations > 0 && !search_first ? 0 : budget_seconds - timing_seconds(); }
  double min_speedup = kNotSlower;  // over eager: a candidate whose whole 95 % interval lies below is not written
  bool emit_only = false;           // written without being run
  bool fresh = false;               // do not answer from the archive
  bool force = false;               // overwrite what stands at `output`, whoever wrote it
  double try_seconds = 0;  // from the beginning, after which no other schedule is tried; 0: however long it takes
  // Instead of a search by time: so many schedules beside the compiler's own, from `proposer` or, without one, from the
  // search in the order of `search_seed`.
  int evaluations = 0;
  bool search_first = false;  // not instead, but after it, from what it found
  uint64_t search_seed = 0;
  std::shared_ptr<const MakeProposer> proposer;
  std::string proposed_by = "search";  // in the archive
};

// The verdict is "pass", "fail" or, with emit_only, "emitted". The candidate is written only
// when it passed and is as fast as min_speedup asks (`written`), or emit_only is set; one that failed is kept beside it
// as *.rejected.py. Throws kw::Error for everything that is not a verdict, and Interrupted. With `shared`, that session
// is used, not a worker of its own.
Report optimize(const OptimizeOptions& options, Progress& progress, class Session* shared = nullptr);

struct VerifyOptions {
  std::string problem, candidate, target = "auto", size, policy = "reference";
  int draws = 0;
  std::optional<uint64_t> seed;
  double timeout_seconds = 600;
};
Report verify_candidate(const VerifyOptions& options, Progress& progress);

struct MeasureOptions {
  std::string problem, candidate, target = "auto", size;  // candidate may be empty
  std::vector<std::string> baselines = {"eager", "compile"};
  double budget_seconds = 10, timeout_seconds = 900;
};
Report measure_problem(const MeasureOptions& options, Progress& progress);

// Measured ceilings of the target's device, with `calibrate` also what the cost model wants; from the archive unless
// `fresh`.
DeviceReport measure_device(const std::string& target, bool fresh, bool calibrate, Progress& progress);

}  // namespace kw
