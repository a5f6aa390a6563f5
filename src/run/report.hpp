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
#include "judge/problem_file.hpp"
#include "measure/ceilings.hpp"
#include "propose/edit_proposer.hpp"
#include "propose/sample_log.hpp"
#include "propose/search_outcome.hpp"

namespace kw {

// What the contract found beside the outputs' errors.
struct Findings {
  std::string reference, reference_note;
  std::vector<Check> checks;
  std::vector<VacuousOutput> vacuous;
  std::vector<std::string> skipped;
  std::optional<Gate> kernelbench_gate;
  std::string detail;
};

struct Draws {
  std::optional<uint64_t> seed;
  int64_t count = 0;
};

// Of a candidate that raised or did not compile.
struct Failure {
  std::string where, source, hint;
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
  std::optional<Speedup> lost;  // over eager, of kernels that gave way to PyTorch's operators
};

struct CompiledKernel {
  std::string name, error;
  bool ok = false;
  std::optional<int64_t> spills, registers, shared_bytes;  // bytes and registers of a thread, bytes of a block
  double seconds = 0.0;                                    // of compiling it
};

struct Kernels {
  std::vector<std::string> names;
  int64_t library_calls = 0;
  std::vector<std::string> library_ops;
  std::optional<bool> cuda_graph;  // none: of a target without
  int64_t kept_weight_bytes = 0;   // of what is made of weights, kept between calls
  std::string schedule = {};       // JSON, with each kernel's own (plan/kernel_schedules.hpp); empty: not known
};

// Triton kernels as machine code.
struct MachineCode {
  int64_t sm = 0, kernels = 0, good = 0;
  std::vector<CompiledKernel> each;
};

struct Searches {
  std::optional<SearchOutcome> search, rescue, relief, proposed;
};

// What one of several proposers had right and cost.
struct ProposerOutcome {
  std::string proposer, verdict;
  std::optional<double> ms, seconds;
  std::optional<int64_t> passed, judged;
  std::optional<Tokens> tokens;
  std::optional<double> cost;
  std::optional<std::map<int, double>> pass_at_k;
  std::string run;
  std::optional<int64_t> answers, evaluated;
  std::optional<double> speedup_over_scheduler;
  std::optional<std::string> error;
};

// Which language model was asked, and how.
struct ModelRun {
  std::string asked, name;
  std::string template_name, template_hash;
  std::string run;  // its name in the archive
  double temperature = 0.0, top_p = 0.0;
  std::string seed;
  std::optional<int64_t> max_tokens, shots, repair, improve;  // none: schedules were asked for
  int64_t prompt_tokens = 0;
};

// Writing and judging at once.
struct Overlap {
  double wall_seconds = 0.0, writing_seconds = 0.0, judging_seconds = 0.0, waiting_seconds = 0.0;
  std::optional<double> slower_side;
};

// Schedules that a language model picked.
struct Edits {
  int64_t groups = 0, evaluations = 0;
  double combinations = 0.0;
  std::vector<double> curve;  // the best time after each evaluation, relative to the first's
  std::vector<EditAnswer> answers;
};

struct StageSeconds {
  std::vector<std::pair<std::string, double>> stages;  // in the order in which they began
  std::optional<double> total;

  void add(const std::string& stage, double seconds);
  double of(const std::string& stage) const;  // 0 where there was none
};

struct Report {
  // What was asked. Without a command the report is a part of another one, and has no subject.
  std::string command, problem, name, problem_hash, size, target, policy;
  std::string graphs;  // --graphs as it was given; empty for targets without

  // What was found.
  std::string verdict, code, reason;
  std::optional<std::vector<JudgedOutput>> errors;
  std::optional<Findings> findings;
  std::optional<Draws> draws;
  std::optional<Failure> failure;
  std::optional<std::vector<std::string>> missing_protections;  // none: there was no process that needed any
  std::string runs_original;  // why the original module ran on the problem's own inputs; empty where it did not
  Timing timing;
  Worth worth;

  // What was made, and by whom.
  std::optional<Kernels> kernels;
  std::optional<MachineCode> compiled;
  Searches searches;
  std::vector<ProposerOutcome> proposers;
  std::string winner;
  std::optional<ModelRun> model;
  Sampling sampling;
  std::optional<std::vector<std::string>> repairs;  // what was mended of the best answer
  std::optional<Overlap> overlap;
  std::optional<Edits> edits;
  std::string candidate, candidate_hash;  // the file; empty where none was written

  // How the run went.
  std::vector<std::string> notes;
  std::optional<std::string> archive_error;
  std::optional<bool> from_archive, interrupted;
  std::optional<bool> lacked_memory;  // it was not timed, as memory was full
  std::string created;
  StageSeconds seconds;

  bool passed() const { return verdict == "pass"; }
  bool failed() const { return verdict == "fail"; }
  bool emitted() const { return verdict == "emitted"; }
  bool is_no() const { return failed() || worth.written == false; }  // what was asked for is not there
  void fail(const std::string& with_code, const std::string& because);
  void add_note(const std::string& note);  // once
};

Report report_on(const char* command, const ProblemFile& problem, const std::string& target);

nlohmann::ordered_json to_json(const Report& report);

// Fields that are missing or of another type are as if they were not there.
Report report_from_json(const nlohmann::ordered_json& json);
std::vector<CompiledKernel> compiled_kernels_from_json(const nlohmann::ordered_json& rows);

// The report of `kw device`.
struct DeviceReport {
  std::string target;
  Ceilings ceilings;
  bool from_archive = false;
  std::optional<Calibration> calibration;
};

nlohmann::ordered_json to_json(const DeviceReport& report);

}  // namespace kw
