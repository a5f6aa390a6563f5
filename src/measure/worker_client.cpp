#include "measure/worker_client.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/error.hpp"
#include "support/memory_kills.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr uint32_t kLargestMessage = 1u << 30;

std::string frame(const std::string& body) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>((body.size() >> shift) & 0xff);
  return bytes + body;
}

uint32_t length_of(const std::string& header) {
  uint32_t length = 0;
  for (int byte = 0; byte < 4; ++byte) length |= static_cast<uint32_t>(static_cast<unsigned char>(header[static_cast<size_t>(byte)])) << (8 * byte);
  return length;
}

std::string text(const Json& json, const char* key) { return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : ""; }

[[noreturn]] void throw_reply(const Json& error) {
  const std::string kind = text(error, "kind");
  const ErrorKind mapped = kind == "user"        ? ErrorKind::kUser
                           : kind == "candidate" ? ErrorKind::kCandidateFailed
                           : kind == "missing"   ? ErrorKind::kMissing
                                                 : ErrorKind::kInternal;
  throw Error(mapped, ErrorText{.message = text(error, "message"), .where = text(error, "where"), .source = text(error, "source"),
                                .hint = text(error, "hint"), .detail = text(error, "detail"), .code = text(error, "code")});
}

}  // namespace

double number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

WorkerClient::WorkerClient(WorkerOptions options) : options_(std::move(options)) {}
WorkerClient::~WorkerClient() = default;

void WorkerClient::start() {
  if (child_) return;
  Subprocess::Options options;
  // With -m the current folder would come first among the places of modules: a file queue.py in it would stand in for the standard library's.
  options.command = {options_.python, "-c", "import sys; sys.path[:] = filter(None, sys.path); from kernelwright.worker import start; start()"};
  options.environment = options_.environment;
  options.environment.push_back("PYTHONSAFEPATH=1");            // the same for the processes that PyTorch starts
  const char* inherited = std::getenv("PYTHONPATH");
  options.environment.push_back("PYTHONPATH=" + options_.module_path + (inherited && *inherited ? ":" + std::string(inherited) : ""));
  options.environment.push_back("PYTHONDONTWRITEBYTECODE=1");   // no __pycache__ in the user's folders
  memory_kills_ = memory_kills();
  child_ = std::make_unique<Subprocess>(options);
}

void WorkerClient::stop() { child_.reset(); }

void WorkerClient::fail(Subprocess::Outcome outcome, double limit_seconds) {
  WorkerFailure failure;
  if (outcome == Subprocess::Outcome::kTimedOut) {
    child_->kill();
    child_->wait();
    failure.kind = WorkerFailure::Kind::kHung;
    failure.what = "gave no answer within " + std::to_string(static_cast<int64_t>(limit_seconds)) + " s";
  } else {
    const ExitStatus status = child_->wait();
    throw_if_interrupted();
    if (status.signal == SIGKILL) {
      failure.kind = WorkerFailure::Kind::kKilled;
      failure.for_memory = memory_kills_ < 0 || memory_kills() != memory_kills_;
      failure.what = failure.for_memory ? "was killed by the system, which does that when memory runs out"
                                        : "was killed by SIGKILL (memory had not run out)";
    } else if (status.signal != 0) {
      failure.kind = WorkerFailure::Kind::kCrashed;
      failure.what = "crashed with signal " + std::to_string(status.signal) + " (" + strsignal(status.signal) + ")";
    } else {
      failure.kind = WorkerFailure::Kind::kExited;
      failure.what = "ended the process with exit code " + std::to_string(status.code);
    }
  }
  failure.log = child_->error_tail();
  child_.reset();
  throw failure;
}

Json WorkerClient::receive(double deadline, double limit_seconds) {
  std::string header, body;
  if (const auto outcome = child_->read(4, deadline, header); outcome != Subprocess::Outcome::kDone) fail(outcome, limit_seconds);
  const uint32_t length = length_of(header);
  Json message;
  if (length <= kLargestMessage) {
    if (const auto outcome = child_->read(length, deadline, body); outcome != Subprocess::Outcome::kDone) fail(outcome, limit_seconds);
    message = Json::parse(body, nullptr, false);
  }
  if (length > kLargestMessage || !message.is_object()) {
    WorkerFailure failure{.kind = WorkerFailure::Kind::kBrokenProtocol, .what = "wrote something else than an answer to the worker's pipe",
                          .log = child_->error_tail()};
    child_.reset();
    throw failure;
  }
  return message;
}

int64_t WorkerClient::send(const std::string& method, const Json& params, double deadline, double limit_seconds) {
  start();
  const int64_t id = ++last_id_;
  const Json message = {{"id", id}, {"method", method}, {"params", params}};
  if (const auto outcome = child_->write(frame(message.dump()), deadline); outcome != Subprocess::Outcome::kDone) fail(outcome, limit_seconds);
  return id;
}

void WorkerClient::post(const std::string& method, const Json& params, double limit_seconds) { send(method, params, steady_seconds() + limit_seconds, limit_seconds); }

Json WorkerClient::stream(const std::string& method, const Json& params, double silence_seconds, const OnStreamed& on_event) {
  const int64_t id = send(method, params, steady_seconds() + silence_seconds, silence_seconds);
  bool cancelled = false;
  while (true) {
    Json reply = receive(steady_seconds() + silence_seconds, silence_seconds);
    if (!reply.contains("id") || reply["id"] != id) continue;
    if (reply.contains("error")) throw_reply(reply["error"]);
    if (reply.contains("result")) return std::move(reply["result"]);
    if (cancelled || on_event(reply["event"])) continue;
    cancelled = true;
    const double deadline = steady_seconds() + silence_seconds;
    if (const auto outcome = child_->write(frame(Json{{"cancel", id}}.dump()), deadline); outcome != Subprocess::Outcome::kDone) fail(outcome, silence_seconds);
  }
}

Json WorkerClient::request(const std::string& method, const Json& params, double limit_seconds, const OnEvent& on_event, const OnWait& on_wait) {
  double deadline = steady_seconds() + limit_seconds;
  const int64_t id = send(method, params, deadline, limit_seconds);
  while (true) {
    Json reply = receive(deadline, limit_seconds);
    if (!reply.contains("id") || reply["id"] != id) continue;   // a late answer to a request that was given up
    if (reply.contains("event")) {
      const Json& event = reply["event"];
      if (event.contains("waited")) {
        const double waited = number_of(event["waited"]);
        deadline += waited;
        if (on_wait) on_wait(text(event, "stage"), waited);
      } else if (on_event) on_event(text(event, "stage"), event.contains("fraction") ? number_of(event["fraction"]) : -1.0);
      continue;
    }
    if (reply.contains("error")) {
      // A kernel that faulted has taken the process's GPU context with it.
      if (text(reply["error"], "code") == "device-error") child_.reset();
      throw_reply(reply["error"]);
    }
    return std::move(reply["result"]);
  }
}

}  // namespace kw
