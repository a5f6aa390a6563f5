// An OpenAI-compatible server: /chat/completions and /completions, streamed. The transport is the host's; requests,
// answers, errors and patience are decided here.
#pragma once

#include <mutex>

#include "llm/backend.hpp"
#include "llm/host.hpp"

namespace kw::llm {

// Where the bytes go, so that tests can script a server: POST (or GET without a body) to url; events as
// docs/worker-protocol.md has them for llm_http.
struct HttpRequest {
  std::string url, body;
};
using Transport =
    std::function<nlohmann::ordered_json(const HttpRequest& request, const WorkerClient::OnStreamed& on_event)>;

// The server's limits as all its requests know them: after one is told to wait, none goes out before that.
class Pace {
 public:
  void wait_until(double steady_second);  // nothing before this
  double pause() const;                   // seconds to wait now; 0: go
 private:
  mutable std::mutex mutex_;
  double not_before_ = 0;
};

class HttpBackend : public Backend {
 public:
  HttpBackend(ModelPlace place, const ModelOptions& options, Transport transport, std::shared_ptr<Pace> pace);

  Completion generate(const Prompt& prompt, const Sampling& sampling, const OnToken& on_token) override;
  int count_tokens(const Prompt& prompt) override;
  int context_tokens() override;
  std::string name() override;

 private:
  struct Attempt;
  bool is_chat(const Prompt& prompt) const;
  nlohmann::ordered_json body_of(const Prompt& prompt, const Sampling& sampling) const;
  void look_at_models();
  void run(Attempt& attempt, const std::string& url, const std::string& body, const Sampling& sampling,
           const OnToken& on_token);
  void pause(double seconds);

  ModelPlace place_;
  ModelOptions options_;
  Transport transport_;
  std::shared_ptr<Pace> pace_;
  std::string served_name_;
  int context_ = 0;
  bool looked_ = false;
  // How a server is told what an answer may look like; the next where it refuses one.
  enum class Structure { kResponseFormat, kGuidedJson, kGrammar, kNone };
  Structure structure_ = Structure::kResponseFormat;
};

Transport transport_through(const std::shared_ptr<Host>& host, const ModelOptions& options);

}  // namespace kw::llm
