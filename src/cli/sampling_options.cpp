#include "cli/sampling_options.hpp"

#include <CLI/CLI.hpp>

#include "cli/help_text.hpp"
#include "cli/options.hpp"
#include "run/output_files.hpp"

namespace kw::cli {

void reads_model(CommandFiles& files, const GenerateOptions& options) {
  files.reads(options.model.model, "the model");
  files.reads(options.prompt, "the prompt's template");
}

void add_answer_form(CLI::App& app, GenerateOptions& options) {
  app.add_option("--temperature", options.temperature,
                 "How freely the model samples: 0 always takes the likeliest "
                 "token")
      ->capture_default_str()
      ->check(zero_to_ten)
      ->type_name("T")
      ->group(kAnswers);
  app.add_option("--top-p", options.top_p, "Sample only among the likeliest tokens that together have this probability")
      ->capture_default_str()
      ->check(zero_to_one)
      ->type_name("P")
      ->group(kAnswers);
  app.add_option("--max-tokens", options.max_tokens, "Length at which one answer is cut off, in tokens")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000'000))
      ->type_name("N")
      ->group(kAnswers);
  app.add_option("--prompt", options.prompt,
                 "Template of the prompt: chat, kernelllm, base, edits, or a file of your "
                 "own (docs/llm.md)")
      ->capture_default_str()
      ->type_name("NAME|FILE")
      ->group(kAnswers);
  app.add_option("--shots", options.shots,
                 "Examples in the prompt: 0 for none, 1 for one that shows the form, more "
                 "for solved problems of the archive")
      ->capture_default_str()
      ->check(CLI::Range(0, 64))
      ->type_name("N")
      ->group(kAnswers);
}

void add_sampling(CLI::App& app, GenerateOptions& options) {
  app.add_flag("--edits", options.edits,
               "The model writes no code: it picks the parameters of the compiler's "
               "kernels, so that every answer is a correct program")
      ->group(kAnswers);
  app.add_option("-k,--samples", options.samples,
                 "Answers to ask for; with --edits: schedules to evaluate, the "
                 "compiler's own being the first")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000))
      ->type_name("K")
      ->group(kAnswers);
  app.add_option("--answers", options.answers,
                 "With --edits: answers to ask for before each evaluation; the one that the cost model expects to be "
                 "fastest is evaluated")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->group(kAnswers);
  app.add_option("--repair", options.repair,
                 "Further turns for an answer that fails: the model is told the verdict "
                 "and answers again")
      ->capture_default_str()
      ->check(CLI::Range(0, 100))
      ->type_name("N")
      ->group(kAnswers);
  app.add_option("--improve", options.improve,
                 "Further turns for an answer that passed: the model is told its times "
                 "and answers again")
      ->capture_default_str()
      ->check(CLI::Range(0, 100))
      ->type_name("N")
      ->group(kAnswers);
  app.add_option("--ask-seconds", options.ask_seconds,
                 "Seconds after which the model is asked no more, even if "
                 "answers are missing; 0 for no limit")
      ->capture_default_str()
      ->check(zero_or_more)
      ->type_name("SECONDS")
      ->group(kAnswers);
  add_answer_form(app, options);
}

void add_sampling_seed(CLI::App& app, GenerateOptions& options, const std::string& otherwise) {
  app.add_option_function<std::string>(
         "--seed", [&options](const std::string& text) { options.seed = seed_of(text); },
         "Seed of the model's sampling: the same seed asks for the same answers, another "
         "one for others")
      ->default_str(otherwise)
      ->check(a_seed)
      ->type_name("S")
      ->group(kAnswers);
}

}  // namespace kw::cli
