#include "run/auto.hpp"
#include "run/output_files.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "run/edits.hpp"
#include "run/output_file.hpp"
#include "run/report_parts.hpp"
#include "run/worth.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/scratch.hpp"
#include "support/text.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json row(const std::string& proposer, const Json& json) {
  const Report report = report_from_json(json);
  const auto& ours = report.timing.measured.time_ms(Contender::kOurs);
  Json row = {{"proposer", proposer},
              {"verdict", report.verdict.empty() ? "fail" : report.verdict},
              {"ms", ours ? Json(ours->value) : Json()},
              {"seconds", or_null(report.seconds)}};
  for (const char* field : {"passed", "judged", "tokens", "cost", "pass_at_k", "run"})
    if (json.contains(field)) row[field] = json[field];
  return row;
}

// Beyond doubt: they were timed in different processes.
bool is_faster(const Json& json, const Json& other) {
  const Measurement made = measurement_from_json(json), others = measurement_from_json(other);
  const auto &ours = made.time_ms(Contender::kOurs), &theirs = others.time_ms(Contender::kOurs);
  return ours && theirs && ours->high < theirs->low;
}

constexpr const char* kScheduler = "scheduler";

// Of a budget beyond timing the search gets one half and the asking the other.
void share_budget(OptimizeOptions& scheduler, GenerateOptions& model) {
  const double rest = scheduler.search_seconds();
  if (rest <= 0 || model.ask_seconds > 0) return;
  model.ask_seconds = rest / 2;
  scheduler.budget_seconds -= rest / 2;
}

// One run of the compiler, which goes on with what the model picks: both are timed side by side.
Json with_edits(OptimizeOptions scheduler, GenerateOptions model, const std::string& proposer, Progress& progress,
                SamplingThreads* shared) {
  share_budget(scheduler, model);
  scheduler.search_first = true;
  EditRun edits(model, shared);
  edits.join(scheduler);
  Json report = optimize(scheduler, progress);
  Json picked;
  edits.describe(picked, report);
  const std::optional<SearchOutcome> proposed = report_from_json(report).searches.proposed;
  const bool won = proposed && proposed->speedup.value_or(1) > 1;
  Json own = row(kScheduler, report), theirs = row(proposer, picked);
  const double seconds = report["seconds"].value("proposed", 0.0);
  own["seconds"] = report["seconds"].value("total", 0.0) - seconds;
  theirs["seconds"] = seconds;
  if (won) std::swap(own["ms"], theirs["ms"]);  // the winner alone is timed beside eager
  theirs["verdict"] = won ? "pass" : "none-faster";
  theirs["answers"] = picked["edits"]["answers"].size();
  theirs["evaluated"] = picked["edits"]["evaluations"].get<int>() - 1;
  if (proposed) theirs["speedup_over_scheduler"] = or_null(proposed->speedup);
  if (edits.fault()) theirs["error"] = edits.fault()->text().message;
  report["edits"] = picked["edits"];
  report["proposers"] = Json::array({own, theirs});
  report["winner"] = won ? proposer : kScheduler;
  return report;
}

// The model's kernels after the compiler's: the better of two runs.
Json with_kernels(OptimizeOptions scheduler, GenerateOptions model, const std::string& proposer, Progress& progress,
                  SamplingThreads* shared) {
  share_budget(scheduler, model);
  const double began = seconds_now(), least = scheduler.min_speedup;
  OutputFile place(resolve_output(scheduler.output, scheduler.problem, scheduler.force));
  place.remember();
  scheduler.min_speedup = model.min_speedup = 0;  // whether the better of both is fast enough shows at the end
  Json report = optimize(scheduler, progress);
  if (scheduler.try_seconds > 0) {
    const double left = std::max(1.0, scheduler.try_seconds - (seconds_now() - began));
    model.ask_seconds = model.ask_seconds > 0 ? std::min(model.ask_seconds, left) : left;
  }
  const std::string& output = place.path();
  Json proposers = Json::array({row(kScheduler, report)});
  const Scratch scratch;
  model.problem = scheduler.problem;
  model.output = scratch.folder() + "/" + std::filesystem::path(output).filename().string();
  model.target = scheduler.target;
  model.size = scheduler.size;
  model.policy = scheduler.policy;
  model.draws = scheduler.draws;
  model.baselines = scheduler.baselines;
  model.budget_seconds = scheduler.timing_seconds();
  std::string winner = kScheduler;
  try {
    GenerateOutcome outcome = generate(model, progress, shared);
    if (outcome.interrupted)
      throw Interrupted{passed(report) ? "the compiler's verified candidate is in " + output : outcome.kept};
    Json& answer = outcome.report;
    proposers.push_back(row(proposer, answer));
    if (outcome.fault) proposers.back()["error"] = outcome.fault->text().message;
    if (passed(answer) && (!passed(report) || is_faster(answer, report))) {
      winner = proposer;
      place.write(read_file(model.output));
      for (const char* field :
           {"verdict", "code", "reason", "errors", "time_ms", "time_interval_ms", "speedup", "noise", "roofline",
            "timer", "baseline_errors", "peak_memory_bytes", "share_in_our_kernels", "profile"})
        if (answer.contains(field)) report[field] = answer[field];
      for (const char* field : {"kernels", "library_calls", "library_ops", "search"}) report.erase(field);
      report["candidate"] = place.absolute_path();
    }
  } catch (const Error& error) {
    if (!passed(report)) throw;
    proposers.push_back({{"proposer", proposer}, {"verdict", "fail"}, {"error", error.text().message}});
  }
  report["proposers"] = proposers;
  report["winner"] = winner;
  scheduler.min_speedup = least;
  if (passed(report) && !decide(report, least, advice_for(scheduler, report_from_json(report).searches)))
    place.put_back();
  return report;
}

}  // namespace

Json optimize_with_model(const OptimizeOptions& options, const GenerateOptions& model, Progress& progress,
                         SamplingThreads* shared) {
  if (!(model.edits && model.model.model == kSearchAsModel))
    llm::place_of(model.model.model);  // a misspelt name is told before the work, not after
  const std::string proposer = (model.edits ? "edits:" : "llm:") + model.model.model;
  Json report = (model.edits ? with_edits : with_kernels)(options, model, proposer, progress, shared);
  for (const Json& one : report["proposers"])
    if (one.contains("error"))
      add_note(report, one["proposer"].get<std::string>() + ": " + one["error"].get<std::string>());
  return report;
}

}  // namespace kw
