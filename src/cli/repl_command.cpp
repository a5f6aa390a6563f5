#include <CLI/CLI.hpp>

#include "cli/commands.hpp"
#include "cli/model_options.hpp"
#include "cli/options.hpp"
#include "cli/repl.hpp"
#include "cli/sampling_options.hpp"
#include "run/output_files.hpp"
#include "support/error.hpp"

namespace kw::cli {

void define_repl(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<ReplOptions>();
  GenerateOptions& generate = options->generate;
  generate.budget_seconds = 3;
  generate.baselines = {"eager"};
  generate.model.concurrency = 1;
  add_problem(app, options->problem)->default_str("none; paste a module, or type :open FILE");
  add_target(app, generate.target);
  add_size(app, generate.size);
  add_budget(app, generate.budget_seconds, "Seconds of timing for each right answer; 0 verifies only");
  add_timeout(app, generate.timeout_seconds, "Seconds after which a candidate counts as hung");
  add_policy(app, generate.policy);
  add_draws(app, generate.draws);
  add_model(app, generate.model)->default_str("none; needed");
  add_answer_form(app, generate);
  add_sampling_seed(app, generate, "none: each answer is another");
  invocation.files = [options](CommandFiles& files) {
    if (!options->problem.empty()) files.reads_problem(options->problem);
    reads_model(files, options->generate);
  };
  invocation.run = [options](Console& console) {
    if (options->generate.model.model.empty())
      throw Error(ErrorKind::kUser, "Which model? --model is missing.",
                  "--model http://127.0.0.1:8000/v1 (a server), model.gguf, a Hugging Face folder, or smollm2.");
    return run_repl(*options, console);
  };
}

}  // namespace kw::cli
