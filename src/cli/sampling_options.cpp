#include "cli/sampling_options.hpp"

#include <CLI/CLI.hpp>

namespace kw::cli {

void add_sampling(CLI::App& app, GenerateOptions& options) {
  app.add_flag("--edits", options.edits, "The model writes no code: it picks the parameters of the compiler's kernels, so that every answer is a correct program");
  app.add_option("-k,--samples", options.samples, "Answers to ask for; with --edits: schedules to evaluate, the compiler's own as the first")->capture_default_str()->check(CLI::Range(1, 100000))->type_name("K");
  app.add_option("--answers", options.answers, "With --edits: answers for each evaluation, of which the one that the cost model expects to be fastest is evaluated")->capture_default_str()->check(CLI::Range(1, 1000))->type_name("N");
  app.add_option("--repair", options.repair, "Further turns for an answer that fails, with the verdict as the next message")->capture_default_str()->check(CLI::Range(0, 100))->type_name("N");
  app.add_option("--improve", options.improve, "Further turns for an answer that passed, with its times and what they go to as the next message")->capture_default_str()->check(CLI::Range(0, 100))->type_name("N");
  app.add_option("--ask-seconds", options.ask_seconds, "Ask the model no more after this time, however many answers are missing; 0: until there are K")->capture_default_str()->check(CLI::Range(0.0, 1e7))->type_name("S");
  app.add_option("--temperature", options.temperature, "Of the sampling")->capture_default_str()->check(CLI::Range(0.0, 10.0))->type_name("T");
  app.add_option("--top-p", options.top_p, "Of the sampling")->capture_default_str()->check(CLI::Range(0.0, 1.0))->type_name("P");
  app.add_option("--max-tokens", options.max_tokens, "Tokens of one answer")->capture_default_str()->check(CLI::Range(1, 10'000'000))->type_name("N");
  app.add_option("--prompt", options.prompt, "Template: chat, kernelllm, base, edits, or a file")->capture_default_str()->type_name("NAME|FILE");
  app.add_option("--shots", options.shots, "Examples in the prompt: 0, 1 (the format's), or more (solved problems of the archive)")->capture_default_str()->check(CLI::Range(0, 64))->type_name("N");
}

void add_sampling_seed(CLI::App& app, GenerateOptions& options) {
  app.add_option_function<uint64_t>("--seed", [&options](const uint64_t& value) { options.seed = value; }, "Of the sampling: another seed is another run  [0]")->type_name("S");
}

}  // namespace kw::cli
