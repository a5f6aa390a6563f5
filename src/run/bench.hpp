// A whole suite: every problem through optimize, or through generate with a language model, in child processes, so that
// nothing one problem does can end the run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "run/generate.hpp"
#include "run/result_line.hpp"

namespace kw {

struct BenchProblem {
  std::string path, name, category;  // category: the folder below the one that was named, "" for single files
};

// Python files that define a class Model, of the files and (recursively) folders named, sorted naturally (2_x before
// 10_x). Throws kUser when a path does not exist or nothing is found.
std::vector<BenchProblem> find_problems(const std::vector<std::string>& paths);

struct BenchOptions {
  std::string target;  // its name
  std::string size;    // of the problems' SIZES; empty: the target's own
  std::string policy = "reference";
  std::string graphs = "auto";       // CUDA graphs, as OptimizeOptions has it
  std::vector<std::string> devices;  // indices of GPUs, or {""} where none is used
  int jobs = 1;                      // problems in work at once, per device; timing takes turns
  std::string out;                   // folder of results.jsonl and candidates/
  double budget_seconds = 0;         // of measuring, per problem; 0: optimize's own default
  double timeout_seconds = 900;      // of a problem, all in all
  bool emit_only = false;
  bool force = false;  // overwrite candidates that somebody edited
  bool redo = false;   // do not skip what is there
  std::vector<std::string> baselines;
  int draws = 0;  // 0: optimize's own default
  // A language model instead of the compiler, or with `after_compiler` after it, when its name is not empty: what
  // GenerateOptions has by the same names.
  GenerateOptions proposer;
  bool after_compiler = false;
};

struct BenchRun {
  std::vector<ResultLine> lines;  // one per problem that has a result, in the order of the problems
  int skipped = 0;                // of them, from an earlier run
  bool interrupted = false;
};

// Called with each new line, one at a time; `done` counts those that were skipped too.
using OnBenchLine = std::function<void(const ResultLine& line, size_t done, size_t of)>;

// Appends a line to OUT/results.jsonl as each problem ends. An interrupt ends the run early and leaves everything so
// far. `on_wait` is told, again and again, who else has a device that is waited for; "" when the wait is over.
BenchRun run_bench(const std::vector<BenchProblem>& problems, const BenchOptions& options, const OnBenchLine& on_line,
                   const std::function<void(const std::string& whom)>& on_wait = {});

// The child's side: reads requests from standard input, a line each, and answers each on standard output with its line
// of results.jsonl, before which there may be lines that tell of waits (run/bench_messages.hpp).
int serve_bench_requests();

}  // namespace kw
