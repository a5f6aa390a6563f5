#include "cli/model_options.hpp"

#include <CLI/CLI.hpp>

namespace kw::cli {

CLI::Option* add_model(CLI::App& app, llm::ModelOptions& model) {
  CLI::Option* option = app.add_option("--model", model.model, "URL[#NAME] of an OpenAI-compatible server, openai:NAME, a .gguf file, a Hugging Face folder, or smollm2; with --edits also random, and search (the compiler's own)")->type_name("MODEL");
  app.add_option("--api", model.api, "What a server is asked: chat for messages, completions for raw prompts")->capture_default_str()->check(CLI::IsMember({"auto", "chat", "completions"}))->type_name("auto|chat|completions");
  app.add_option("--key-variable", model.key_variable, "The environment variable that holds the server's key")->capture_default_str()->type_name("NAME");
  app.add_option("--concurrency", model.concurrency, "Requests at once  [4 to a server, 1 for a local model]")->check(CLI::Range(1, 256))->type_name("N");
  app.add_option("--retries", model.patience.attempts, "Attempts for one request, with growing pauses, when a server fails or turns it away")->capture_default_str()->check(CLI::Range(1, 100))->type_name("N");
  app.add_option("--silence", model.patience.silence_seconds, "Seconds without a byte after which a server counts as hung")->capture_default_str()->check(CLI::PositiveNumber)->type_name("SECONDS");
  app.add_option("--answer-time", model.patience.total_seconds, "Seconds after which an answer is cut off")->capture_default_str()->check(CLI::PositiveNumber)->type_name("SECONDS");
  app.add_option("--context", model.context, "Tokens that a local model reads and writes together  [its own, at most 8192]")->check(CLI::Range(128, 10'000'000))->type_name("N");
  app.add_option("--gpu-layers", model.gpu_layers, "GGUF: layers on the GPU; -1: all")->capture_default_str()->type_name("N");
  app.add_option("--threads", model.threads, "GGUF: threads  [half the cores]")->check(CLI::Range(1, 1024))->type_name("N");
  app.add_option("--device-map", model.device, "Hugging Face folder: auto (the GPU where there is one), cpu, cuda:1, or a device map")->capture_default_str()->type_name("DEVICE");
  app.add_option("--dtype", model.dtype, "Hugging Face folder: auto, float32, bfloat16, float16")->capture_default_str()->check(CLI::IsMember({"auto", "float32", "bfloat16", "float16"}))->type_name("DTYPE");
  app.add_option("--price-read", model.read_price, "What a million tokens of prompts cost, in any currency: reports then say what the run did")->check(CLI::NonNegativeNumber)->type_name("PRICE");
  app.add_option("--price-written", model.written_price, "What a million tokens of answers cost")->check(CLI::NonNegativeNumber)->type_name("PRICE");
  return option;
}

}  // namespace kw::cli
