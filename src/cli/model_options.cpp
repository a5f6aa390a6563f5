#include "cli/model_options.hpp"

#include <CLI/CLI.hpp>

#include "cli/help_text.hpp"
#include "cli/options.hpp"

namespace kw::cli {

namespace {

void add_server(CLI::App& app, llm::ModelOptions& model) {
  app.add_option("--api", model.api,
                 "For a server: chat sends messages, completions sends raw prompts, auto finds "
                 "out which it takes")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "chat", "completions"}))
      ->type_name("auto|chat|completions")
      ->group(kLanguageModel);
  app.add_option("--key-variable", model.key_variable, "For a server: the environment variable that holds its key")
      ->capture_default_str()
      ->type_name("NAME")
      ->group(kLanguageModel);
  app.add_option("--retries", model.patience.attempts,
                 "For a server: attempts for one request, with growing pauses, "
                 "when it fails or turns it away")
      ->capture_default_str()
      ->check(CLI::Range(1, 100))
      ->type_name("N")
      ->group(kLanguageModel);
  app.add_option("--silence", model.patience.silence_seconds,
                 "For a server: seconds without a byte after which it counts as hung")
      ->capture_default_str()
      ->check(more_than_zero)
      ->type_name("SECONDS")
      ->group(kLanguageModel);
  app.add_option("--concurrency", model.concurrency, "Requests at once")
      ->default_str("4 to a server, 1 for a local model")
      ->check(CLI::Range(1, 256))
      ->type_name("N")
      ->group(kLanguageModel);
  app.add_option("--answer-time", model.patience.total_seconds, "Seconds after which an answer is cut off")
      ->capture_default_str()
      ->check(more_than_zero)
      ->type_name("SECONDS")
      ->group(kLanguageModel);
}

void add_local(CLI::App& app, llm::ModelOptions& model) {
  app.add_option("--context", model.context, "For a local model: tokens that it reads and writes together")
      ->default_str("the model's own, at most 8192")
      ->check(CLI::Range(128, 10'000'000))
      ->type_name("N")
      ->group(kLanguageModel);
  app.add_option("--gpu-layers", model.gpu_layers,
                 "For a .gguf file: layers that run on the GPU; -1 for as many as "
                 "fit")
      ->capture_default_str()
      ->type_name("N")
      ->group(kLanguageModel);
  app.add_option("--threads", model.threads, "For a .gguf file: threads")
      ->default_str("half the cores")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->group(kLanguageModel);
  app.add_option("--device-map", model.device,
                 "For a Hugging Face folder: auto (the GPU where there is one), cpu, "
                 "cuda:1, or a device map of Accelerate")
      ->capture_default_str()
      ->type_name("DEVICE")
      ->group(kLanguageModel);
  app.add_option("--dtype", model.dtype, "For a Hugging Face folder: auto, float32, bfloat16 or float16")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "float16"}))
      ->type_name("DTYPE")
      ->group(kLanguageModel);
}

}  // namespace

CLI::Option* add_model(CLI::App& app, llm::ModelOptions& model) {
  CLI::Option* option = app.add_option("--model", model.model,
                                       "Which model: URL or URL#NAME of an OpenAI-compatible server, openai:NAME, a "
                                       ".gguf file, a Hugging Face folder, or smollm2 (small, for trying); with "
                                       "--edits also random, and search (the compiler's own)");
  option->type_name("MODEL")->group(kLanguageModel);
  add_server(app, model);
  add_local(app, model);
  app.add_option("--price-read", model.read_price,
                 "Price of a million tokens of prompts, in any currency; the report "
                 "then says what the run cost")
      ->default_str("no costs are shown")
      ->check(zero_or_more)
      ->type_name("PRICE")
      ->group(kLanguageModel);
  app.add_option("--price-written", model.written_price, "Price of a million tokens of answers")
      ->default_str("no costs are shown")
      ->check(zero_or_more)
      ->type_name("PRICE")
      ->group(kLanguageModel);
  return option;
}

}  // namespace kw::cli
