#include "run/auto.hpp"
#include "run/output_files.hpp"

#include <algorithm>
#include <filesystem>

#include "run/edits.hpp"
#include "run/output_file.hpp"
#include "run/worth.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/scratch.hpp"
#include "support/text.hpp"

namespace kw {

namespace {

ProposerOutcome row(const std::string& proposer, const Report& report) {
  ProposerOutcome row;
  row.proposer = proposer;
  row.verdict = report.verdict.empty() ? "fail" : report.verdict;
  if (const auto& ours = report.timing.measured.time_ms(Contender::kOurs)) row.ms = ours->value;
  row.seconds = report.seconds.total;
  if (!report.model) return row;
  row.passed = report.sampling.passed;
  row.judged = report.sampling.judged;
  row.tokens = report.sampling.tokens;
  row.cost = report.sampling.cost;
  row.pass_at_k = report.sampling.pass_at_k;
  row.run = report.model->run;
  return row;
}

// Beyond doubt: they were timed in different processes.
bool is_faster(const Report& one, const Report& other) {
  const auto &ours = one.timing.measured.time_ms(Contender::kOurs),
             &theirs = other.timing.measured.time_ms(Contender::kOurs);
  return ours && theirs && ours->high < theirs->low;
}

// The model's candidate in the place of the compiler's.
void take_answer(Report& report, const Report& answer) {
  report.verdict = answer.verdict;
  report.code = answer.code;
  report.reason = answer.reason;
  if (answer.errors) report.errors = answer.errors;
  if (answer.timing.is_taken) report.timing = answer.timing;
  report.kernels.reset();
  report.searches.search.reset();
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
Report with_edits(OptimizeOptions scheduler, GenerateOptions model, const std::string& proposer, Progress& progress,
                  SamplingThreads* shared) {
  share_budget(scheduler, model);
  scheduler.search_first = true;
  EditRun edits(model, shared);
  edits.join(scheduler);
  Report report = optimize(scheduler, progress);
  Report picked;
  edits.describe(picked, report.searches);
  const std::optional<SearchOutcome>& proposed = report.searches.proposed;
  const bool won = proposed && proposed->speedup.value_or(1) > 1;
  ProposerOutcome own = row(kScheduler, report), theirs = row(proposer, picked);
  const double seconds = report.seconds.of("proposed");
  own.seconds = report.seconds.total.value_or(0) - seconds;
  theirs.seconds = seconds;
  if (won) std::swap(own.ms, theirs.ms);  // the winner alone is timed beside eager
  theirs.verdict = won ? "pass" : "none-faster";
  theirs.answers = static_cast<int64_t>(picked.edits->answers.size());
  theirs.evaluated = picked.edits->evaluations - 1;
  if (proposed) theirs.speedup_over_scheduler = proposed->speedup;
  if (edits.fault()) theirs.error = edits.fault()->text().message;
  report.edits = std::move(picked.edits);
  report.proposers = {std::move(own), std::move(theirs)};
  report.winner = won ? proposer : kScheduler;
  return report;
}

// The model's kernels after the compiler's: the better of two runs.
Report with_kernels(OptimizeOptions scheduler, GenerateOptions model, const std::string& proposer, Progress& progress,
                    SamplingThreads* shared) {
  share_budget(scheduler, model);
  const double began = seconds_now(), least = scheduler.min_speedup;
  OutputFile place(resolve_output(scheduler.output, scheduler.problem, scheduler.force));
  place.remember();
  scheduler.min_speedup = model.min_speedup = 0;  // whether the better of both is fast enough shows at the end
  Report report = optimize(scheduler, progress);
  if (scheduler.try_seconds > 0) {
    const double left = std::max(1.0, scheduler.try_seconds - (seconds_now() - began));
    model.ask_seconds = model.ask_seconds > 0 ? std::min(model.ask_seconds, left) : left;
  }
  const std::string& output = place.path();
  std::vector<ProposerOutcome> proposers = {row(kScheduler, report)};
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
      throw Interrupted{report.passed() ? "the compiler's verified candidate is in " + output : outcome.kept};
    const Report& answer = outcome.report;
    proposers.push_back(row(proposer, answer));
    if (outcome.fault) proposers.back().error = outcome.fault->text().message;
    if (answer.passed() && (!report.passed() || is_faster(answer, report))) {
      winner = proposer;
      place.write(read_file(model.output));
      take_answer(report, answer);
      report.candidate = place.absolute_path();
    }
  } catch (const Error& error) {
    if (!report.passed()) throw;
    proposers.push_back(row(proposer, Report{}));
    proposers.back().error = error.text().message;
  }
  report.proposers = std::move(proposers);
  report.winner = winner;
  scheduler.min_speedup = least;
  if (report.passed() && !decide(report, least, advice_for(scheduler, report.searches))) place.put_back();
  return report;
}

}  // namespace

Report optimize_with_model(const OptimizeOptions& options, const GenerateOptions& model, Progress& progress,
                           SamplingThreads* shared) {
  if (!(model.edits && model.model.model == kSearchAsModel))
    llm::place_of(model.model.model);  // a misspelt name is told before the work, not after
  const std::string proposer = (model.edits ? "edits:" : "llm:") + model.model.model;
  Report report = (model.edits ? with_edits : with_kernels)(options, model, proposer, progress, shared);
  for (const ProposerOutcome& one : report.proposers)
    if (one.error) report.add_note(one.proposer + ": " + *one.error);
  return report;
}

}  // namespace kw
