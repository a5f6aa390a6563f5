#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/help_text.hpp"
#include "cli/model_options.hpp"
#include "cli/options.hpp"
#include "cli/report_text.hpp"
#include "cli/sampling_options.hpp"
#include "run/generate.hpp"
#include "run/optimize.hpp"
#include "run/output_files.hpp"
#include "support/error_json.hpp"
#include "support/interrupt.hpp"

namespace kw::cli {

namespace {

int run_generate(const GenerateOptions& options, bool show_prompt, Console& console) {
  if (show_prompt) {
    const auto shown = prompt_for(options, console);
    console.print(shown["prompt"].get<std::string>());
    console.write_json(shown);
    return kGood;
  }
  if (options.model.model.empty())
    throw Error(ErrorKind::kUser, ErrorText{.message = "Which model? --model is missing.",
                                            .where = "",
                                            .source = "",
                                            .hint = "--model http://127.0.0.1:8000/v1 (a server), model.gguf, a "
                                                    "Hugging Face folder, or smollm2; --show-prompt needs none.",
                                            .detail = "",
                                            .code = "no-model"});
  if (options.emit_only && !options.edits)
    throw Error(ErrorKind::kUser, "--emit-only goes with --edits: what a model writes has to be run to be trusted.");
  const GenerateOutcome outcome = generate(options, console);
  const Report& report = outcome.report;
  console.print(options.edits ? edits_text(report) : generate_text(report));
  auto json = to_json(report);
  if (outcome.fault) json["error"] = to_json(*outcome.fault);
  console.write_json(json);
  if (outcome.interrupted) {
    console.warn("interrupted; " + outcome.kept);
    return kInterruptedExitCode;
  }
  if (outcome.fault) {
    console.warn(render(*outcome.fault));
    console.warn(outcome.kept + ".");
    return outcome.fault->exit_code();
  }
  return report.is_no() ? kAnswerIsNo : kGood;
}

}  // namespace

void define_generate(CLI::App& app, Invocation& invocation) {
  struct Options {
    GenerateOptions generate;
    bool show_prompt = false;
  };
  auto options = std::make_shared<Options>();
  GenerateOptions& generate = options->generate;
  add_problem(app, generate.problem)->required();
  app.add_option("-o,--output", generate.output, "Where to write the best module that passes")
      ->default_str("STEM_kw.py in the current folder")
      ->type_name("FILE")
      ->check(a_name)
      ->group(kInputOutput);
  add_target(app, generate.target);
  add_size(app, generate.size);
  app.add_flag("--show-prompt", options->show_prompt, "Print the prompt and ask no model")->group(kInputOutput);
  app.add_flag("--emit-only", generate.emit_only,
               "With --edits: write and compile without running, for a device that "
               "is not here")
      ->group(kInputOutput);
  app.add_flag("--fresh", generate.fresh, "Ask again for what the archive holds of this run")->group(kInputOutput);
  add_force(app, generate.force);
  add_budget(app, generate.budget_seconds,
             "Seconds of timing for the answers that passed, all together; 0 verifies "
             "only");
  add_timeout(app, generate.timeout_seconds, "Seconds after which a candidate counts as hung");
  add_min_speedup(app, generate.min_speedup);
  add_baselines(app, generate.baselines);
  add_policy(app, generate.policy);
  add_draws(app, generate.draws);
  add_model(app, generate.model)->default_str("none; needed unless --show-prompt");
  add_sampling(app, generate);
  add_sampling_seed(app, generate, "0");
  invocation.files = [options](CommandFiles& files) {
    const GenerateOptions& given = options->generate;
    files.reads_problem(given.problem);
    reads_model(files, given);
    if (!options->show_prompt) files.writes(output_path(given.output, given.problem), "the output");
  };
  invocation.run = [options](Console& console) {
    return run_generate(options->generate, options->show_prompt, console);
  };
}

}  // namespace kw::cli
