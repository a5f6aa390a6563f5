#include "run/edits.hpp"
#include "run/output_files.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "archive/archive.hpp"
#include "judge/environment.hpp"
#include "judge/problem_file.hpp"
#include "targets/targets.hpp"
#include "propose/captured.hpp"
#include "propose/compile.hpp"
#include "propose/device_facts.hpp"
#include "propose/edit_proposer.hpp"
#include "propose/prompt_facts.hpp"
#include "run/optimize.hpp"
#include "run/report_version.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

OptimizeOptions optimize_options(const GenerateOptions& options) {
  OptimizeOptions result;
  result.problem = options.problem;
  result.output = options.output;
  result.target = options.target;
  result.size = options.size;
  result.policy = options.policy;
  result.baselines = options.baselines;
  result.budget_seconds = std::min(options.budget_seconds, kTimingSeconds);
  result.timeout_seconds = options.timeout_seconds;
  result.draws = options.draws;
  result.emit_only = options.emit_only;
  result.force = options.force;
  result.min_speedup = options.min_speedup;
  return result;
}

// The best time, relative to the one it begins with, after each evaluation; the first is 1.
std::vector<double> curve_of(const SearchOutcome& search) {
  std::vector<double> curve = {1.0};
  for (const SearchTrial& one : search.trials) curve.push_back(one.best);
  return curve;
}

}  // namespace

struct EditRun::State {
  EditLog log;
  Environment environment = find_environment();
  std::optional<SamplingThreads> own;
  SamplingThreads* threads = nullptr;
  bool after_search = false;  // then optimize() reports the evaluations as "proposed", otherwise as "search"
};

EditRun::EditRun(const GenerateOptions& options, SamplingThreads* shared)
    : options_(options), state_(std::make_unique<State>()) {
  state_->threads = shared;
}
EditRun::~EditRun() = default;
const std::optional<Error>& EditRun::fault() const { return state_->log.fault; }

void EditRun::join(OptimizeOptions& settings) {
  settings.evaluations = std::max(0, options_.samples - 1);
  settings.search_seed = options_.seed.value_or(0);
  state_->after_search = settings.search_first;
  settings.fresh = true;  // answers of earlier runs are taken up one by one
  const std::string proposer = options_.model.model;
  if (proposer == kSearchAsModel) return;
  const Environment& environment = state_->environment;
  if (!state_->threads)
    state_->threads = &state_->own.emplace(
        llm::open_backends(options_.model, {environment.python, environment.module_path}));
  const Target& target = resolve_target(settings.target, environment, !settings.emit_only);
  settings.proposer = std::make_shared<MakeProposer>([this, &target](const EditContext& context) {
    return edit_proposer(context, options_,
                         device_in_words(context.archive, state_->environment, context.environment_hash, target),
                         *state_->threads, state_->log);
  });
  settings.proposed_by = proposer == "random" ? "random" : "llm:" + proposer;
}

void EditRun::describe(Report& report, const Searches& found) {
  state_->own.reset();
  const EditLog& log = state_->log;
  const std::string proposer = options_.model.model;
  report.model = ModelRun{.asked = proposer,
                          .name = log.model.empty() ? proposer : log.model,
                          .template_name = options_.template_name(),
                          .template_hash = llm::load_template(options_.template_name()).hash(),
                          .run = log.run,
                          .temperature = options_.temperature,
                          .top_p = options_.top_p,
                          .seed = std::to_string(options_.seed.value_or(0)),
                          .max_tokens = std::nullopt,
                          .shots = std::nullopt,
                          .repair = std::nullopt,
                          .improve = std::nullopt,
                          .prompt_tokens = log.prompt_tokens};
  report.sampling = log.samples.sampling(options_.model);
  const SearchOutcome search = (state_->after_search ? found.proposed : found.search).value_or(SearchOutcome{});
  report.edits = Edits{.groups = log.groups,
                       .evaluations = search.tried + 1,
                       .combinations = log.combinations,
                       .curve = curve_of(search),
                       .answers = log.answers};
}

GenerateOutcome generate_edits(const GenerateOptions& options, Progress& progress, SamplingThreads* shared) {
  OptimizeOptions settings = optimize_options(options);
  EditRun edits(options, shared);
  edits.join(settings);
  GenerateOutcome outcome;
  Report& report = outcome.report;
  report = optimize(settings, progress);
  edits.describe(report, report.searches);
  report.command = "generate";
  if (report.code.empty()) report.code = report.passed() ? "pass" : "none-passed";
  report.interrupted = false;
  outcome.fault = edits.fault();
  outcome.kept = "what was verified is in " + output_path(options.output, options.problem) +
                 "; the same command goes on from here";
  return outcome;
}

Json edit_prompt_for(const GenerateOptions& options, Progress& progress) {
  const Environment environment = find_environment();
  const Target& target = resolve_target(options.target, environment, false);
  const ProblemFile problem = read_problem_file(options.problem, options.size, target);
  Archive archive;
  const std::string environment_hash = archive.add_environment(environment.description_json());
  Session session(environment, progress, options.timeout_seconds);
  Graph graph = captured_graph(session, problem.path, problem.size, std::string(target.tensors()));
  allow_tf32_under(options.policy, target.tensors(), graph);
  const DeviceDescription device = known_device(archive, environment, environment_hash, target, session.card());
  session.stop();
  const Compiled compiled = compile(std::move(graph),
                                    {.device = device,
                                     .caution = Caution::kNone,
                                     .passes = {},
                                     .problem_name = problem.title(),
                                     .problem_source = problem.source},
                                    CompileStage::kSchedule);
  search::Catalogue catalogue(compiled.graph, device);
  Json shown = edit_prompt(llm::load_template(options.template_name()), catalogue, compiled.schedule,
                           device_in_words(archive, environment, environment_hash, target));
  shown["version"] = kReportVersion;
  shown["command"] = "generate";
  return shown;
}

}  // namespace kw
