#include "llm/host.hpp"

#include <algorithm>

#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::llm {

using Json = nlohmann::ordered_json;

namespace {

[[noreturn]] void throw_for(const WorkerFailure& failure) {
  std::vector<std::string> lines = split_lines(failure.log);
  if (lines.size() > 3) lines.erase(lines.begin(), lines.end() - 3);
  ErrorText text;
  text.code = failure.kind == WorkerFailure::Kind::kKilled ? "model-too-large"
              : failure.kind == WorkerFailure::Kind::kHung ? "model-hung"
                                                           : "model-process";
  text.message = "The Python process that runs the model " + failure.what + ".";
  text.hint = failure.kind == WorkerFailure::Kind::kKilled
                  ? "Take a smaller model or a stronger quantisation, or a shorter --context."
              : lines.empty() ? "`kw doctor` looks at what is there."
                              : "Its last words: " + join(lines, "\n");
  text.detail = failure.log;
  throw Error(ErrorKind::kMissing, std::move(text));
}

}  // namespace

Host::Host(const HostOptions& options) : client_(WorkerOptions{options.python, options.module_path, {}}) {}

Json Host::request(const std::string& method, const Json& params, double limit_seconds) {
  try {
    return client_.request(method, params, limit_seconds);
  } catch (const WorkerFailure& failure) { throw_for(failure); }
}

Json Host::stream(const std::string& method, const Json& params, double silence_seconds,
                  const WorkerClient::OnStreamed& on_event) {
  try {
    return client_.stream(method, params, silence_seconds, on_event);
  } catch (const WorkerFailure& failure) { throw_for(failure); }
}

}  // namespace kw::llm
