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
  const bool killed = failure.kind == WorkerFailure::Kind::kKilled, too_large = killed && failure.for_memory;
  ErrorText text;
  text.code = too_large                                    ? "model-too-large"
              : failure.kind == WorkerFailure::Kind::kHung ? "model-hung"
                                                           : "model-process";
  text.message = "The Python process that runs the model " + failure.what + ".";
  text.hint = too_large       ? "Take a smaller model or a stronger quantisation, or a shorter --context."
              : killed        ? "Find out what ends processes here, then try again."
              : lines.empty() ? "`kw doctor` looks at what is there."
                              : "Its last words: " + join(lines, "\n");
  text.detail = failure.log;
  throw Error(ErrorKind::kMissing, std::move(text));
}

// Whether another process would answer as the one that was killed would have: it had no model loaded.
bool again_helps(const std::string& method, const WorkerFailure& failure) {
  return failure.kind == WorkerFailure::Kind::kKilled && !failure.for_memory && method != "llm_load" &&
         method != "llm_generate";
}

}  // namespace

Host::Host(const HostOptions& options) : client_(WorkerOptions{options.python, options.module_path, {}}) {}

Json Host::request(const std::string& method, const Json& params, double limit_seconds) {
  for (bool is_first = true;; is_first = false) try {
      return client_.request(method, params, limit_seconds);
    } catch (const WorkerFailure& failure) {
      if (!is_first || !again_helps(method, failure)) throw_for(failure);
    }
}

Json Host::stream(const std::string& method, const Json& params, double silence_seconds,
                  const WorkerClient::OnStreamed& on_event) {
  bool has_told = false;  // what came already would come twice
  const auto tell = [&](const Json& event) {
    has_told = true;
    return on_event(event);
  };
  for (bool is_first = true;; is_first = false) try {
      return client_.stream(method, params, silence_seconds, tell);
    } catch (const WorkerFailure& failure) {
      if (!is_first || has_told || !again_helps(method, failure)) throw_for(failure);
    }
}

}  // namespace kw::llm
