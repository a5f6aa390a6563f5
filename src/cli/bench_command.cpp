#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/commands.hpp"
#include "cli/model_options.hpp"
#include "cli/options.hpp"
#include "cli/sampling_options.hpp"
#include "driver/bench.hpp"
#include "driver/environment.hpp"
#include "driver/optimize.hpp"
#include "driver/summary.hpp"
#include "driver/report_version.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/text.hpp"

namespace kw::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> paths;
  BenchOptions bench;
  int jobs = 0;
  std::string proposer = "scheduler";
};

// Two or three prepare while one is timed; on the CPU the others would disturb the timing.
int default_jobs(const BenchOptions& options) {
  const int cores = std::max(1u, std::thread::hardware_concurrency());
  if (options.emit_only) return cores;
  return options.devices.front() == "cpu" ? 1 : std::clamp(cores / static_cast<int>(4 * options.devices.size()), 1, 3);
}

std::string line_text(const Json& line, size_t done, size_t of) {
  const std::string verdict = line.contains("error") ? "error" : line.value("verdict", "?");
  std::string text = fmt::format("[{}/{}] {:<8} {:<44}", done, of, verdict, line.value("name", ""));
  for (const char* baseline : {"eager", "compile"})
    if (line.contains("speedup") && line["speedup"].is_object() && line["speedup"].contains(baseline) && line["speedup"][baseline].is_object())
      text += fmt::format("  {:.2f}x {}", line["speedup"][baseline].value("value", 0.0), baseline);
  if (line.contains("error")) text += "  " + line["error"].value("message", "");
  else if (verdict != "pass" && verdict != "emitted") text += "  " + line.value("reason", "");
  return text;
}

void choose_proposer(const std::string& name, BenchOptions& bench) {
  if (name == "scheduler") return;
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  if (colon == std::string::npos || colon + 1 == name.size() || (kind != "llm" && kind != "edits" && kind != "auto"))
    throw Error(ErrorKind::kUser, "there is no proposer " + name + ".", "--proposer takes scheduler, llm:MODEL, edits:MODEL or auto:MODEL, with MODEL as `kw generate --model` has it.");
  if (kind != "edits" && bench.emit_only)
    throw Error(ErrorKind::kUser, "--proposer " + kind + " and --emit-only do not go together: what a model proposes has to be run to be trusted.", "edits:MODEL picks schedules of the compiler's kernels, which can be emitted without being run.");
  bench.proposer.model.model = name.substr(colon + 1);
  bench.proposer.edits = bench.proposer.edits || kind == "edits";
  bench.after_compiler = kind == "auto";
}

int bench(Options options, Console& console) {
  const Environment environment = find_environment();
  BenchOptions& bench = options.bench;
  choose_proposer(options.proposer, bench);
  if (!bench.proposer.model.model.empty() && !(bench.proposer.edits && bench.proposer.model.model == kSearchAsModel)) llm::place_of(bench.proposer.model.model);
  bench.target = resolve_target(bench.target, environment, !bench.emit_only);
  if (bench.emit_only) bench.devices = {""};
  else if (bench.target == "cpu") bench.devices = {"cpu"};
  else if (bench.devices.empty()) bench.devices = {"0"};
  bench.jobs = options.jobs > 0 ? options.jobs : default_jobs(bench);
  const std::vector<BenchProblem> problems = find_problems(options.paths);
  const BenchRun run = run_bench(problems, bench, [&](const Json& line, size_t done, size_t of) { console.note(line_text(line, done, of)); });

  Json summary = {{"version", kReportVersion}, {"target", bench.target}, {"policy", bench.policy}, {"results", bench.out + "/results.jsonl"},
                  {"of", problems.size()},   {"skipped", run.skipped}, {"interrupted", run.interrupted}};
  summary.update(summarise(run.lines));
  write_file_atomically(bench.out + "/summary.json", summary.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  console.print(summary_text(summary));
  if (run.skipped) console.print(fmt::format("{} of {} were there already (--fresh runs them again)", run.skipped, problems.size()));
  console.print(fmt::format("{} lines in {}/results.jsonl", run.lines.size(), bench.out));
  console.write_json(summary);
  if (run.interrupted) {
    console.warn("interrupted; the same command goes on from here");
    return kInterruptedExitCode;
  }
  return summary["failures"].empty() ? kGood : kAnswerIsNo;
}

}  // namespace

void define_bench(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  options->bench.target = "auto";
  options->bench.out = "kw-bench";
  options->bench.baselines = {"eager", "compile"};
  options->bench.budget_seconds = 10;
  app.add_option("PATH", options->paths, "Problem files, and folders that are searched for them")->required();
  add_target(app, options->bench.target);
  add_size(app, options->bench.size);
  add_policy(app, options->bench.policy);
  add_baselines(app, options->bench.baselines);
  app.add_option("--devices", options->bench.devices, "GPUs to share the work  [0]")->delimiter(',')->type_name("0,1,…");
  app.add_option("--jobs", options->jobs, "Problems in work at once, per device; timing is one at a time")->check(CLI::Range(1, 1024))->type_name("N");
  app.add_option("--out", options->bench.out, "Folder of results.jsonl, summary.json and candidates/")->capture_default_str()->type_name("DIR");
  app.add_option("--budget", options->bench.budget_seconds, "Seconds per problem: up to 10 of timing, the rest of searching; 0: verify only")->capture_default_str()->check(CLI::NonNegativeNumber)->type_name("SECONDS");
  app.add_option("--timeout", options->bench.timeout_seconds, "Seconds after which a problem is given up")->capture_default_str()->check(CLI::PositiveNumber)->type_name("SECONDS");
  app.add_option("--draws", options->bench.draws, "Draws of inputs and weights  [one of each kind]")->check(CLI::Range(1, 10000))->type_name("N");
  app.add_flag("--emit-only", options->bench.emit_only, "Write candidates without running them; for triton, compile every kernel for sm_90");
  app.add_flag("--fresh", options->bench.redo, "Run what has a result already, too");
  app.add_option("--proposer", options->proposer, "scheduler: the compiler; llm:MODEL: a language model, with all its options; edits:MODEL: one that picks schedules; auto:MODEL: the compiler, then the model (with --edits its picks), and the better of both")->capture_default_str()->type_name("scheduler|llm:MODEL|edits:MODEL|auto:MODEL");
  add_model(app, options->bench.proposer.model)->group("");
  add_sampling(app, options->bench.proposer);
  add_sampling_seed(app, options->bench.proposer);
  invocation.run = [options](Console& console) { return bench(*options, console); };
}

void define_bench_worker(CLI::App&, Invocation& invocation) {
  invocation.run = [](Console&) { return serve_bench_requests(); };
}

}  // namespace kw::cli
