#include <CLI/CLI.hpp>

#include "cli/commands.hpp"
#include "cli/model_options.hpp"
#include "cli/options.hpp"
#include "cli/repl.hpp"
#include "support/error.hpp"

namespace kw::cli {

void define_repl(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<ReplOptions>();
  GenerateOptions& generate = options->generate;
  generate.budget_seconds = 3;
  generate.baselines = {"eager"};
  generate.model.concurrency = 1;
  app.add_option("PROBLEM", options->problem, "Python file to open at once");
  add_model(app, generate.model);
  app.add_option("--temperature", generate.temperature, "Of the sampling")->capture_default_str()->check(CLI::Range(0.0, 10.0))->type_name("T");
  app.add_option("--top-p", generate.top_p, "Of the sampling")->capture_default_str()->check(CLI::Range(0.0, 1.0))->type_name("P");
  app.add_option("--max-tokens", generate.max_tokens, "Tokens of one answer")->capture_default_str()->check(CLI::Range(1, 10'000'000))->type_name("N");
  app.add_option("--prompt", generate.prompt, "Template: chat, kernelllm, base, or a file")->capture_default_str()->type_name("NAME|FILE");
  app.add_option("--shots", generate.shots, "Examples in the prompt: 0, 1 (the format's), or more (solved problems of the archive)")->capture_default_str()->check(CLI::Range(0, 64))->type_name("N");
  app.add_option_function<uint64_t>("--seed", [&generate](const uint64_t& value) { generate.seed = value; }, "Of the sampling  [none]")->type_name("S");
  add_target(app, generate.target);
  add_size(app, generate.size);
  add_policy(app, generate.policy);
  app.add_option("--draws", generate.draws, "Draws of inputs and weights  [one of each of the five kinds]")->check(CLI::Range(1, 10000))->type_name("N");
  app.add_option("--budget", generate.budget_seconds, "Seconds of timing each right answer; 0: verify only")->capture_default_str()->check(CLI::NonNegativeNumber)->type_name("SECONDS");
  app.add_option("--timeout", generate.timeout_seconds, "Seconds after which a candidate counts as hung")->capture_default_str()->check(CLI::PositiveNumber)->type_name("SECONDS");
  invocation.run = [options](Console& console) {
    if (options->generate.model.model.empty())
      throw Error(ErrorKind::kUser, "Which model? --model is missing.", "--model http://127.0.0.1:8000/v1 (a server), model.gguf, a Hugging Face folder, or smollm2.");
    return run_repl(*options, console);
  };
}

}  // namespace kw::cli
