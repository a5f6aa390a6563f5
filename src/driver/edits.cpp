#include "driver/edits.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "archive/archive.hpp"
#include "capture/reader.hpp"
#include "driver/compile.hpp"
#include "driver/device_facts.hpp"
#include "driver/edit_proposer.hpp"
#include "driver/environment.hpp"
#include "driver/optimize.hpp"
#include "driver/problem_file.hpp"
#include "driver/prompt_facts.hpp"
#include "driver/report.hpp"
#include "driver/report_version.hpp"

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
  result.fresh = true;                       // answers of earlier runs are taken up one by one
  result.lock = options.lock;
  result.evaluations = std::max(0, options.samples - 1);
  result.search_seed = options.seed.value_or(0);
  return result;
}

// The best time, relative to the compiler's own, after each evaluation; the first is 1.
Json curve_of(const Json& report) {
  Json curve = Json::array({1.0});
  if (report.contains("search"))
    for (const Json& one : report["search"]["trials"]) curve.push_back(one["best"]);
  return curve;
}

}  // namespace

GenerateOutcome generate_edits(const GenerateOptions& options, Progress& progress, SamplingThreads* shared) {
  const Environment environment = find_environment();
  OptimizeOptions settings = optimize_options(options);
  EditLog log;
  std::optional<SamplingThreads> own;
  const std::string proposer = options.model.model;
  if (proposer != kSearchAsModel) {
    if (!shared) shared = &own.emplace(llm::open_backends(options.model, {environment.python, environment.module_path}));
    const std::string target = resolve_target(options.target, environment, !options.emit_only);
    settings.proposer = std::make_shared<MakeProposer>([&, target](const EditContext& context) {
      return edit_proposer(context, options, device_in_words(context.archive, environment, context.environment_hash, target), *shared, log);
    });
    settings.proposed_by = proposer == "random" ? "random" : "llm:" + proposer;
  }
  GenerateOutcome outcome;
  Json& report = outcome.report;
  report = optimize(settings, progress);
  own.reset();
  report["command"] = "generate";
  if (!report.contains("code")) report["code"] = passed(report) ? "pass" : "none-passed";
  report["model"] = {{"asked", proposer}, {"name", log.model.empty() ? proposer : log.model}};
  report["template"] = {{"name", options.template_name()}, {"hash", llm::load_template(options.template_name()).hash()}};
  report["run"] = log.run;
  report["sampling"] = {{"temperature", options.temperature}, {"top_p", options.top_p}, {"seed", std::to_string(options.seed.value_or(0))}};
  log.samples.describe(report, options.model);
  report["prompt_tokens"] = log.prompt_tokens;
  report["edits"] = {{"groups", log.groups}, {"combinations", log.combinations}, {"evaluations", report.contains("search") ? report["search"].value("tried", 0) + 1 : 1}, {"curve", curve_of(report)}, {"answers", log.trials}};
  report["interrupted"] = false;
  outcome.fault = log.fault;
  outcome.kept = "what was verified is in " + resolve_output(options.output, options.problem) + "; the same command goes on from here";
  return outcome;
}

Json edit_prompt_for(const GenerateOptions& options, Progress& progress) {
  const Environment environment = find_environment();
  const std::string target = resolve_target(options.target, environment, false);
  const ProblemFile problem = read_problem_file(options.problem, options.size, target);
  Archive archive;
  const std::string environment_hash = archive.add_environment(environment.description_json());
  Session session(environment, progress, options.timeout_seconds);
  Graph graph = read_graph(session.capture(problem.path, problem.size, device_of(target)));
  session.stop();
  const Compiled compiled = compile(std::move(graph), {.target = target, .caution = Caution::kNone, .passes = {}, .problem_name = problem.title(), .problem_source = problem.source}, CompileStage::kSchedule);
  search::Catalogue catalogue(compiled.graph, known_device(archive, environment, environment_hash, target));
  Json shown = edit_prompt(llm::load_template(options.template_name()), catalogue, compiled.schedule, device_in_words(archive, environment, environment_hash, target));
  shown["version"] = kReportVersion;
  shown["command"] = "generate";
  return shown;
}

}  // namespace kw
