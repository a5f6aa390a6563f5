#include <nlohmann/json.hpp>

#include "propose/generate_options.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

// One table for both directions: `field(name, value)` for each option.
template <typename Options, typename Field>
void each_field(Options& options, const Field& field) {
  field("model", options.model.model);
  field("api", options.model.api);
  field("key_variable", options.model.key_variable);
  field("concurrency", options.model.concurrency);
  field("context", options.model.context);
  field("device_map", options.model.device);
  field("dtype", options.model.dtype);
  field("gpu_layers", options.model.gpu_layers);
  field("threads", options.model.threads);
  field("retries", options.model.patience.attempts);
  field("silence", options.model.patience.silence_seconds);
  field("answer_time", options.model.patience.total_seconds);
  field("edits", options.edits);
  field("prompt", options.prompt);
  field("samples", options.samples);
  field("answers", options.answers);
  field("shots", options.shots);
  field("repair", options.repair);
  field("improve", options.improve);
  field("ask_seconds", options.ask_seconds);
  field("temperature", options.temperature);
  field("top_p", options.top_p);
  field("max_tokens", options.max_tokens);
  field("timeout", options.timeout_seconds);
  field("price_read", options.model.read_price);
  field("price_written", options.model.written_price);
}

}  // namespace

Json to_json(const GenerateOptions& options) {
  Json json;
  each_field(options, [&](const char* name, const auto& value) { json[name] = value; });
  json["seed"] = options.seed ? Json(*options.seed) : Json();
  return json;
}

GenerateOptions generate_options_from(const Json& json) {
  GenerateOptions options;
  each_field(options, [&](const char* name, auto& value) { json.at(name).get_to(value); });
  if (json.at("seed").is_number()) options.seed = json["seed"].get<uint64_t>();
  return options;
}

}  // namespace kw
