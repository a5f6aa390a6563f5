#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/model_options.hpp"
#include "cli/options.hpp"
#include "cli/report_text.hpp"
#include "cli/sampling_options.hpp"
#include "driver/auto.hpp"
#include "support/error.hpp"

namespace kw::cli {

void define_optimize(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<OptimizeOptions>();
  auto model = std::make_shared<GenerateOptions>();
  app.add_option("PROBLEM", options->problem, "Python file with Model, get_inputs() and get_init_inputs()")->required();
  app.add_option("-o,--output", options->output, "Where the candidate goes  [STEM_kw.py in the current folder]")->type_name("FILE");
  add_target(app, options->target);
  add_size(app, options->size);
  add_policy(app, options->policy);
  app.add_option("--budget", options->budget_seconds, "Seconds spent on speed: up to 10 of timing, the rest of searching other schedules; 0: verify only")->capture_default_str()->check(CLI::NonNegativeNumber)->type_name("SECONDS");
  app.add_option("--timeout", options->timeout_seconds, "Seconds after which the model, or a candidate, counts as hung")->capture_default_str()->check(CLI::PositiveNumber)->type_name("SECONDS");
  add_baselines(app, options->baselines);
  add_draws(app, options->draws, options->seed);
  app.add_option("--disable-pass", options->disabled_passes, "Leave out a pass, by name, or all")->type_name("NAME")->delimiter(',');
  app.add_flag("--emit-only", options->emit_only, "Write the candidate without running it");
  app.add_flag("--fresh", options->fresh, "Do the work again, whatever the archive holds");
  auto proposer = std::make_shared<std::string>("scheduler");
  app.add_option("--proposer", *proposer, "scheduler: the compiler; auto: a language model (--model) as well, and the better of both")->capture_default_str()->check(CLI::IsMember({"scheduler", "auto"}))->type_name("scheduler|auto");
  add_model(app, model->model);
  add_sampling(app, *model);
  invocation.run = [options, model, proposer](Console& console) {
    if (*proposer == "auto" && model->model.model.empty())
      throw Error(ErrorKind::kUser, "--proposer auto needs a model: --model is missing.", "--model http://127.0.0.1:8000/v1 (a server), model.gguf, a Hugging Face folder, or smollm2.");
    if (*proposer == "auto" && options->emit_only) throw Error(ErrorKind::kUser, "--proposer auto and --emit-only do not go together: a model's kernels have to be run to be trusted.");
    const auto report = *proposer == "auto" ? optimize_with_model(*options, *model, console) : optimize(*options, console);
    console.print(optimize_text(report));
    console.write_json(report);
    if (report.value("verdict", "") == "fail") return kAnswerIsNo;
    return report.contains("archive_error") ? kMissing : kGood;
  };
}

}  // namespace kw::cli
