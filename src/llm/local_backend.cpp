#include "llm/local_backend.hpp"

#include "llm/repetition.hpp"
#include "support/error.hpp"
#include "support/subprocess.hpp"

namespace kw::llm {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kLoadLimit = 1800;  // a 70-billion-parameter folder from a network disk
constexpr double kCountLimit = 60;

Json prompt_json(const Prompt& prompt) {
  if (prompt.messages.empty()) return {{"raw", prompt.raw}};
  Json messages = Json::array();
  for (const Message& message : prompt.messages)
    messages.push_back({{"role", message.role}, {"content", message.content}});
  return {{"messages", messages}};
}

}  // namespace

LocalBackend::LocalBackend(ModelPlace place, const ModelOptions& options, std::shared_ptr<Host> host)
    : place_(std::move(place)), options_(options), host_(std::move(host)) {}

void LocalBackend::load() {
  if (loaded_.is_object()) return;
  loaded_ = host_->request("llm_load",
                           {{"kind", place_.kind == ModelKind::kGguf ? "gguf" : "transformers"},
                            {"path", place_.path},
                            {"context", options_.context},
                            {"gpu_layers", options_.gpu_layers},
                            {"threads", options_.threads},
                            {"device", options_.device},
                            {"dtype", options_.dtype}},
                           kLoadLimit);
}

Completion LocalBackend::generate(const Prompt& prompt, const Sampling& sampling, const OnToken& on_token) {
  load();
  Json params = {{"prompt", prompt_json(prompt)},
                 {"temperature", sampling.temperature},
                 {"top_p", sampling.top_p},
                 {"max_tokens", sampling.max_tokens},
                 {"stop", sampling.stop}};
  if (sampling.seed) params["seed"] = *sampling.seed & 0x7fffffff;
  if (!sampling.grammar.empty()) params["grammar"] = sampling.grammar;
  Completion completion;
  completion.model = name();
  const double began = steady_seconds();
  size_t looked_for_circles = 0;
  const Json result = host_->stream("llm_generate", params,
                                    options_.patience.silence_seconds + options_.patience.total_seconds,
                                    [&](const Json& event) {
                                      const std::string piece = event.value("data", "");
                                      if (completion.text.empty())
                                        completion.first_token_seconds = steady_seconds() - began;
                                      completion.text += piece;
                                      if (on_token && !on_token(piece)) completion.finish = "cancelled";
                                      if (steady_seconds() - began > options_.patience.total_seconds)
                                        completion.finish = "length";
                                      if (completion.text.size() - looked_for_circles > kCircleStep) {
                                        looked_for_circles = completion.text.size();
                                        if (goes_in_circles(completion.text)) completion.finish = "repetition";
                                      }
                                      return completion.finish.empty();
                                    });
  completion.seconds = steady_seconds() - began;
  if (completion.finish.empty()) completion.finish = result.value("finish", "stop");
  completion.prompt_tokens = result.value("prompt_tokens", 0);
  completion.completion_tokens = result.value("completion_tokens", 0);
  return completion;
}

int LocalBackend::count_tokens(const Prompt& prompt) {
  load();
  return host_->request("llm_load", {{"count", prompt_json(prompt)}}, kCountLimit).value("tokens", 0);
}

int LocalBackend::context_tokens() {
  load();
  return loaded_.value("context", 0);
}

std::string LocalBackend::name() {
  load();
  return loaded_.value("name", place_.path);
}

}  // namespace kw::llm
