// The Python process that holds what is Python: TLS and the local models' libraries (docs/worker-protocol.md, "llm_…").
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "llm/backend.hpp"
#include "measure/worker_client.hpp"

namespace kw::llm {

class Host {
 public:
  explicit Host(const HostOptions& options);

  // As WorkerClient's; a process that ends or is silent leaves as kw::Error with the code "model-process". One that was
  // killed, though memory had not run out, is asked once more where it had no model loaded and had told nothing.
  nlohmann::ordered_json request(const std::string& method, const nlohmann::ordered_json& params, double limit_seconds);
  nlohmann::ordered_json stream(const std::string& method, const nlohmann::ordered_json& params, double silence_seconds,
                                const WorkerClient::OnStreamed& on_event);
  void start() { client_.start(); }  // so that Python is there when it is asked
  void stop() { client_.stop(); }

 private:
  WorkerClient client_;
};

}  // namespace kw::llm
