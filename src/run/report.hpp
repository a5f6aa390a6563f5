// A report (docs/json.md) as fields: what a command has to say of its outcome, and what later commands read of it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "judge/contract.hpp"
#include "judge/measurement.hpp"

namespace kw {

// An output on one draw, and the largest share of its bound that its errors take; none where that is no number.
struct OutputShare {
  std::string draw, output;
  std::optional<double> of_bound;
};

struct Accuracy {
  int64_t draws = 0;
  std::vector<OutputShare> outputs;
  std::optional<Gate> kernelbench_gate;
};

// Of a candidate that raised or did not compile.
struct Failure {
  std::string where, source, detail;
};

struct Advice {
  std::string command, effect;
};

// Whether the candidate is worth having.
struct Worth {
  enum class BesideEager { kNotAsked, kNotTimed, kNotSlower, kSlower };
  BesideEager beside_eager = BesideEager::kNotAsked;
  std::optional<bool> written;  // none: nothing was to be written
  double min_speedup = 1.0;
  std::vector<Advice> advice;
  std::optional<Estimate> lost;  // over eager, of kernels that gave way to PyTorch's operators
};

struct CompiledKernel {
  std::string name, error;
  bool ok = false;
  std::optional<int64_t> spills, registers;  // bytes and registers of a thread
};

struct Kernels {
  size_t count = 0;
  int64_t library_calls = 0;
  std::vector<std::string> library_ops;
  std::optional<double> share;  // of the candidate's device time
  bool cuda_graph = false;
};

// Triton kernels as machine code.
struct MachineCode {
  int64_t kernels = 0, good = 0;
  std::vector<CompiledKernel> each;
};

struct SearchTrial {
  std::string change;
  std::optional<double> ratio;  // to the first candidate's time, where it was measured
  double best = 1.0;            // of all so far
};

struct SearchOutcome {
  std::optional<double> speedup;  // over the first candidate
  int64_t tried = 0, reused = 0;
  bool exhausted = false;
  double budget_seconds = 0.0;
  std::vector<SearchTrial> trials;
};

struct Searches {
  std::optional<SearchOutcome> search, rescue, relief, proposed;
};

struct Tokens {
  std::optional<int64_t> prompt, completion;
  std::optional<double> per_second;
};

// What one of several proposers had right and cost.
struct ProposerOutcome {
  std::string proposer, verdict;
  std::optional<int64_t> judged, passed, answers, evaluated;
  std::optional<double> ms, speedup_over_scheduler, cost, seconds;
  Tokens tokens;
};

// A language model's answers.
struct Sampling {
  int64_t judged = 0, passed = 0, passed_at_first = 0;
  std::optional<std::map<int, double>> pass_at_k, best_at_k;
  std::vector<std::pair<std::string, int64_t>> codes, repairs;
  Tokens tokens;
  std::optional<double> cost;
  double overhead_ms = 0.0;  // the median
};

// Schedules that a language model picked.
struct EditCounts {
  int64_t groups = 0, evaluations = 0;
  double combinations = 0.0;
};

struct Report {
  std::string verdict, code, reason;
  std::string graphs;  // --graphs as it was given; empty for targets without
  Accuracy accuracy;
  Failure failure;
  std::vector<std::string> missing_protections;
  std::string runs_original;  // why the original module ran on the problem's own inputs; empty where it did not
  Timing timing;
  Worth worth;
  std::optional<Kernels> kernels;
  MachineCode compiled;
  Searches searches;
  std::vector<ProposerOutcome> proposers;
  std::string winner;
  Sampling sampling;
  EditCounts edits;
  std::vector<std::string> notes;
  std::optional<std::string> archive_error;
  std::string candidate;  // the file; empty where none was written
  bool from_archive = false;
  std::string created;
  std::optional<double> seconds;

  bool passed() const { return verdict == "pass"; }
  bool failed() const { return verdict == "fail"; }
  bool emitted() const { return verdict == "emitted"; }
  bool is_no() const { return failed() || worth.written == false; }  // what was asked for is not there
};

// Fields that are missing or of another type are as if they were not there.
Report report_from_json(const nlohmann::ordered_json& json);
MachineCode machine_code_from_json(const nlohmann::ordered_json& json);  // of "compiled"

// The report of `kw device`.
struct DeviceReport {
  std::string name;
  std::optional<double> copy_bytes_per_second, read_bytes_per_second, launch_seconds;
  std::vector<std::pair<std::string, double>> flops;  // by dtype
  struct Calibration {
    std::optional<double> strided_bytes_per_second, gather_bytes_per_second, cache_bytes_per_second,
        shared_bytes_per_second, synchronise_seconds;
  } calibration;
  bool from_archive = false;
};
DeviceReport device_report_from_json(const nlohmann::ordered_json& json);

}  // namespace kw
