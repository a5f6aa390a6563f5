#include "driver/auto.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "driver/report.hpp"
#include "driver/scratch.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/text.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

Json median_of(const Json& report) { return report.contains("time_ms") && report["time_ms"].is_object() ? report["time_ms"].value("ours", Json()) : Json(); }

Json row(const std::string& proposer, const Json& report) {
  Json row = {{"proposer", proposer}, {"verdict", report.value("verdict", "fail")}, {"ms", median_of(report)}, {"seconds", report.contains("seconds") ? report["seconds"].value("total", Json()) : Json()}};
  for (const char* field : {"passed", "judged", "tokens", "cost", "pass_at_k", "run"})
    if (report.contains(field)) row[field] = report[field];
  return row;
}

// Beyond doubt: they were timed in different processes.
bool is_faster(const Json& report, const Json& other) {
  const auto interval = [](const Json& of) -> Json { return of.contains("time_interval_ms") && of["time_interval_ms"].is_object() ? of["time_interval_ms"].value("ours", Json()) : Json(); };
  const Json mine = interval(report), theirs = interval(other);
  return mine.is_array() && theirs.is_array() && mine[1].get<double>() < theirs[0].get<double>();
}

}  // namespace

Json optimize_with_model(const OptimizeOptions& options, GenerateOptions model, Progress& progress) {
  if (!(model.edits && model.model.model == kSearchAsModel)) llm::place_of(model.model.model);   // a misspelt name is told before the work, not after
  OptimizeOptions scheduler = options;
  if (const double rest = options.search_seconds(); rest > 0 && model.ask_seconds <= 0) {
    model.ask_seconds = rest / 2;
    scheduler.budget_seconds -= rest / 2;
  }
  Json report = optimize(scheduler, progress);
  const std::string output = resolve_output(options.output, options.problem), proposer = (model.edits ? "edits:" : "llm:") + model.model.model;
  Json proposers = Json::array({row("scheduler", report)});
  const Scratch scratch;
  model.problem = options.problem;
  model.output = scratch.folder() + "/" + std::filesystem::path(output).filename().string();
  model.target = options.target;
  model.size = options.size;
  model.policy = options.policy;
  model.draws = options.draws;
  model.baselines = options.baselines;
  model.budget_seconds = options.timing_seconds();
  model.lock = options.lock;
  std::string winner = "scheduler";
  try {
    GenerateOutcome outcome = generate(model, progress);
    if (outcome.interrupted) throw Interrupted{passed(report) ? "the compiler's verified candidate is in " + output : outcome.kept};
    Json& answer = outcome.report;
    proposers.push_back(row(proposer, answer));
    if (outcome.fault) proposers.back()["error"] = outcome.fault->text().message;
    if (passed(answer) && (!passed(report) || is_faster(answer, report))) {
      winner = proposer;
      write_file_atomically(output, read_file(model.output));
      for (const char* field : {"verdict", "code", "reason", "errors", "time_ms", "time_interval_ms", "speedup", "roofline", "timer", "baseline_errors", "peak_memory_bytes", "share_in_our_kernels", "profile"})
        if (answer.contains(field)) report[field] = answer[field];
      for (const char* field : {"kernels", "library_calls", "library_ops", "search"}) report.erase(field);
      report["candidate"] = std::filesystem::absolute(output).lexically_normal().string();
    }
  } catch (const Error& error) {
    if (!passed(report)) throw;
    proposers.push_back({{"proposer", proposer}, {"verdict", "fail"}, {"error", error.text().message}});
  }
  for (const Json& one : proposers)
    if (one.contains("error")) add_note(report, one["proposer"].get<std::string>() + ": " + one["error"].get<std::string>());
  report["proposers"] = proposers;
  report["winner"] = winner;
  return report;
}

}  // namespace kw
