#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/help_text.hpp"
#include "cli/model_options.hpp"
#include "cli/options.hpp"
#include "cli/report_text.hpp"
#include "cli/sampling_options.hpp"
#include "run/auto.hpp"
#include "run/output_files.hpp"
#include "support/error.hpp"

namespace kw::cli {

void define_optimize(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<OptimizeOptions>();
  auto model = std::make_shared<GenerateOptions>();
  add_problem(app, options->problem)->required();
  app.add_option("-o,--output", options->output, "Where to write the faster module")
      ->default_str("STEM_kw.py in the current folder")
      ->type_name("FILE")
      ->check(a_name)
      ->group(kInputOutput);
  add_target(app, options->target);
  add_size(app, options->size);
  app.add_flag("--emit-only", options->emit_only,
               "Write the file without running, verifying or timing it, for a "
               "device that is not here")
      ->group(kInputOutput);
  app.add_flag("--fresh", options->fresh, "Do the work again, even if the archive has an answer")->group(kInputOutput);
  add_force(app, options->force);
  add_budget(app, options->budget_seconds,
             "Seconds spent on speed: the first 10 time the answer, the rest search for "
             "a faster one; 0 verifies only");
  add_timeout(app, options->timeout_seconds, "Seconds after which the model, or a candidate, counts as hung");
  add_baselines(app, options->baselines);
  add_min_speedup(app, options->min_speedup);
  add_graphs(app, options->graphs);
  add_policy(app, options->policy);
  add_draws(app, options->draws);
  add_seed(app, options->seed);
  auto proposer = std::make_shared<std::string>("scheduler");
  app.add_option("--proposer", *proposer,
                 "Who proposes kernels: scheduler, the compiler alone; auto, a language "
                 "model as well (needs --model), and the better of both")
      ->capture_default_str()
      ->check(CLI::IsMember({"scheduler", "auto"}))
      ->type_name("scheduler|auto")
      ->group(kLanguageModel);
  add_model(app, model->model)->default_str("none");
  add_sampling(app, *model);
  add_disabled_passes(app, options->disabled_passes);
  add_schedule(app, options->schedule);
  invocation.files = [options, model](CommandFiles& files) {
    files.reads_problem(options->problem);
    if (!options->schedule.empty()) files.reads(options->schedule, "the schedule");
    reads_model(files, *model);
    const std::string output = output_path(options->output, options->problem);
    files.writes(output, "the output");
    files.writes(rejected_path(output), "the file for a candidate that fails,");
  };
  invocation.run = [options, model, proposer](Console& console) {
    if (*proposer == "auto" && model->model.model.empty())
      throw Error(ErrorKind::kUser, "--proposer auto needs a model: --model is missing.",
                  "--model http://127.0.0.1:8000/v1 (a server), model.gguf, a Hugging Face folder, or smollm2.");
    if (*proposer == "auto" && options->emit_only)
      throw Error(
          ErrorKind::kUser,
          "--proposer auto and --emit-only do not go together: a model's kernels have to be run to be trusted.");
    const Report report = *proposer == "auto" ? optimize_with_model(*options, *model, console)
                                              : optimize(*options, console);
    console.print(optimize_text(report));
    console.write_json(to_json(report));
    if (report.is_no()) return kAnswerIsNo;
    return report.archive_error ? kMissing : kGood;
  };
}

}  // namespace kw::cli
