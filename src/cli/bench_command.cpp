#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/commands.hpp"
#include "cli/help_text.hpp"
#include "cli/model_options.hpp"
#include "cli/options.hpp"
#include "cli/sampling_options.hpp"
#include "judge/environment.hpp"
#include "targets/targets.hpp"
#include "run/bench.hpp"
#include "run/optimize.hpp"
#include "run/output_files.hpp"
#include "run/report_version.hpp"
#include "run/summary.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/text.hpp"

namespace kw::cli {

namespace {

using Json = nlohmann::ordered_json;

struct BenchArguments {
  std::vector<std::string> paths;
  BenchOptions bench;
  int jobs = 0;
  std::string proposer = "scheduler";
};

// Two or three prepare while one is timed; on the CPU the others would disturb the timing.
int default_jobs(const BenchOptions& options, const Target& target) {
  const int cores = std::max(1u, std::thread::hardware_concurrency());
  if (options.emit_only) return cores;
  return target.is_host() ? 1 : std::clamp(cores / static_cast<int>(4 * options.devices.size()), 1, 3);
}

std::string line_text(const ResultLine& line, size_t done, size_t of) {
  const Report& report = line.report;
  std::string text = fmt::format("[{}/{}] {:<8} {:<44}", done, of, report.verdict, line.name);
  for (const Contender baseline : kBaselines)
    if (const auto& speedup = report.timing.measured.speedup_over(baseline))
      text += fmt::format("  {:.2f}x {}", speedup->ratio.value, name_of(baseline));
  if (!report.timing.measured.noise.empty()) text += "  noisy";
  if (!report.passed() && !report.emitted()) text += "  " + report.reason;
  return text;
}

void choose_proposer(const std::string& name, BenchOptions& bench) {
  if (name == "scheduler") return;
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  if (colon == std::string::npos || colon + 1 == name.size() || (kind != "llm" && kind != "edits" && kind != "auto"))
    throw Error(ErrorKind::kUser, "there is no proposer " + name + ".",
                "--proposer takes scheduler, llm:MODEL, edits:MODEL or auto:MODEL, with MODEL as `kw generate --model` "
                "has it.");
  if (kind != "edits" && bench.emit_only)
    throw Error(ErrorKind::kUser,
                "--proposer " + kind +
                    " and --emit-only do not go together: what a model proposes has to be run to be trusted.",
                "edits:MODEL picks schedules of the compiler's kernels, which can be emitted without being run.");
  bench.proposer.model.model = name.substr(colon + 1);
  bench.proposer.edits = bench.proposer.edits || kind == "edits";
  bench.after_compiler = kind == "auto";
}

// What is wrong with a path is said by the run.
void reads_problems(CommandFiles& files, const std::string& path) {
  files.reads(path, "the problem file");
  try {
    for (const BenchProblem& problem : find_problems({path})) files.reads_problem(problem.path);
  } catch (const Error&) {}
}

const std::string& made_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw Error(ErrorKind::kUser, "cannot create the folder " + path + ": " + error.message() + ".",
                "Give another folder with --out.");
  return path;
}

int bench(BenchArguments options, Console& console) {
  const Environment environment = find_environment();
  BenchOptions& bench = options.bench;
  choose_proposer(options.proposer, bench);
  if (!bench.proposer.model.model.empty() && !(bench.proposer.edits && bench.proposer.model.model == kSearchAsModel))
    llm::place_of(bench.proposer.model.model);
  const Target& target = resolve_target(bench.target, environment, !bench.emit_only);
  bench.target = target.name();
  if (bench.emit_only || target.is_host()) bench.devices = {""};
  else if (bench.devices.empty()) bench.devices = {"0"};
  bench.jobs = options.jobs > 0 ? options.jobs : default_jobs(bench, target);
  const std::vector<BenchProblem> problems = find_problems(options.paths);
  const BenchRun run = run_bench(
      problems, bench, [&](const ResultLine& line, size_t done, size_t of) { console.note(line_text(line, done, of)); },
      [&](const std::string& whom) { console.waiting(whom, 0); });

  Json summary = {{"version", kReportVersion},     {"target", bench.target},
                  {"policy", bench.policy},        {"results", bench.out + "/results.jsonl"},
                  {"of", problems.size()},         {"skipped", run.skipped},
                  {"interrupted", run.interrupted}};
  const Summary figures = summarise(run.lines);
  summary.update(to_json(figures));
  write_file_atomically(bench.out + "/summary.json",
                        summary.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  console.print(summary_text(figures));
  if (run.skipped)
    console.print(fmt::format("{} of {} were there already (--fresh runs them again)", run.skipped, problems.size()));
  console.print(fmt::format("{} lines in {}/results.jsonl", run.lines.size(), bench.out));
  console.write_json(summary);
  if (run.interrupted) {
    console.warn("interrupted; the same command goes on from here");
    return kInterruptedExitCode;
  }
  return figures.failures.empty() ? kGood : kAnswerIsNo;
}

}  // namespace

void define_bench(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<BenchArguments>();
  options->bench.target = "auto";
  options->bench.out = "kw-bench";
  options->bench.baselines = {"eager", "compile"};
  options->bench.budget_seconds = 10;
  app.add_option("PATH", options->paths, "Problem files, and folders that are searched for them")->required();
  app.add_option("--out", options->bench.out, "Folder for results.jsonl, summary.json and candidates/")
      ->capture_default_str()
      ->type_name("DIR")
      ->check(a_name)
      ->group(kInputOutput);
  add_target(app, options->bench.target);
  add_size(app, options->bench.size);
  app.add_flag("--emit-only", options->bench.emit_only,
               "Write candidates without running them; for triton, compile "
               "every kernel for sm_90")
      ->group(kInputOutput);
  app.add_flag("--fresh", options->bench.redo, "Run also what has a result already")->group(kInputOutput);
  add_force(app, options->bench.force);
  add_budget(app, options->bench.budget_seconds,
             "Seconds for each problem: the first 10 time the answer, the rest "
             "search for a faster one; 0 verifies only");
  add_timeout(app, options->bench.timeout_seconds, "Seconds after which a problem is given up");
  add_baselines(app, options->bench.baselines);
  app.add_option("--devices", options->bench.devices, "Numbers of the GPUs that share the work")
      ->delimiter(',')
      ->check(number_of_gpu)
      ->default_str("0")
      ->type_name("N,...")
      ->group(kSearchAndTime);
  app.add_option("--jobs", options->jobs, "Problems in work at once on each device; only one at a time is timed")
      ->default_str("by the number of cores: 1 to 3, with --emit-only all")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->group(kSearchAndTime);
  add_graphs(app, options->bench.graphs);
  add_policy(app, options->bench.policy);
  add_draws(app, options->bench.draws);
  app.add_option("--proposer", options->proposer,
                 "Who proposes kernels: scheduler, the compiler; llm:MODEL, a language model; edits:MODEL, one that "
                 "picks schedules; auto:MODEL, the compiler, then the model (with --edits its picks), and the better "
                 "of both. MODEL is as `kw generate --model` takes it")
      ->capture_default_str()
      ->type_name("PROPOSER")
      ->group(kLanguageModel);
  add_model(app, options->bench.proposer.model)->group(kHidden);
  add_sampling(app, options->bench.proposer);
  add_sampling_seed(app, options->bench.proposer, "0");
  invocation.files = [options](CommandFiles& files) {
    for (const std::string& path : options->paths) reads_problems(files, path);
    reads_model(files, options->bench.proposer);
    for (const char* name : {"results.jsonl", "summary.json"})
      files.writes_json(made_folder(options->bench.out) + "/" + name, "the bench's");
  };
  invocation.run = [options](Console& console) { return bench(*options, console); };
}

void define_bench_worker(CLI::App&, Invocation& invocation) {
  invocation.run = [](Console&) { return serve_bench_requests(); };
}

}  // namespace kw::cli
