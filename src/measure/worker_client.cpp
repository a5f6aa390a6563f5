#include "measure/worker_client.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "measure/worker_answers.hpp"
#include "support/error.hpp"
#include "support/memory_kills.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

std::string frame(const std::string& body) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>((body.size() >> shift) & 0xff);
  return bytes + body;
}

}  // namespace

WorkerClient::WorkerClient(WorkerOptions options) : options_(std::move(options)) {}
WorkerClient::~WorkerClient() = default;

void WorkerClient::start() {
  if (child_) return;
  Subprocess::Options options;
  // With -m the current folder would come first among the places of modules: a file queue.py in it would stand in for
  // the standard library's.
  options.command = {
      options_.python, "-c",
      "import sys; sys.path[:] = filter(None, sys.path); from kernelwright.worker import start; start()"};
  options.environment = options_.environment;
  options.environment.push_back("PYTHONSAFEPATH=1");  // the same for the processes that PyTorch starts
  const char* inherited = std::getenv("PYTHONPATH");
  options.environment.push_back("PYTHONPATH=" + options_.module_path +
                                (inherited && *inherited ? ":" + std::string(inherited) : ""));
  options.environment.push_back("PYTHONDONTWRITEBYTECODE=1");  // no __pycache__ in the user's folders
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
  if (const auto outcome = child_->read(4, deadline, header); outcome != Subprocess::Outcome::kDone)
    fail(outcome, limit_seconds);
  const std::optional<uint32_t> length = message_length(header);
  if (!length) fail_as_broken();
  if (const auto outcome = child_->read(*length, deadline, body); outcome != Subprocess::Outcome::kDone)
    fail(outcome, limit_seconds);
  std::optional<Json> message = message_of(body);
  if (!message) fail_as_broken();
  return std::move(*message);
}

void WorkerClient::fail_as_broken() {
  WorkerFailure failure{.kind = WorkerFailure::Kind::kBrokenProtocol,
                        .what = "wrote something else than an answer to the worker's pipe",
                        .log = child_->error_tail()};
  child_.reset();
  throw failure;
}

int64_t WorkerClient::send(const std::string& method, const Json& params, double deadline, double limit_seconds) {
  start();
  const int64_t id = ++last_id_;
  const Json message = {{"id", id}, {"method", method}, {"params", params}};
  if (const auto outcome = child_->write(frame(message.dump()), deadline); outcome != Subprocess::Outcome::kDone)
    fail(outcome, limit_seconds);
  return id;
}

void WorkerClient::post(const std::string& method, const Json& params, double limit_seconds) {
  send(method, params, steady_seconds() + limit_seconds, limit_seconds);
}

Json WorkerClient::stream(const std::string& method, const Json& params, double silence_seconds,
                          const OnStreamed& on_event) {
  const int64_t id = send(method, params, steady_seconds() + silence_seconds, silence_seconds);
  bool cancelled = false;
  const double began = steady_seconds();
  while (true) {
    Answer answer = answer_to(id, receive(steady_seconds() + silence_seconds, silence_seconds),
                              steady_seconds() - began);
    if (answer.kind == Answer::Kind::kBroken) fail_as_broken();
    if (answer.kind == Answer::Kind::kResult) return std::move(answer.value);
    if (answer.kind == Answer::Kind::kOther || cancelled || on_event(answer.value)) continue;
    cancelled = true;
    const double deadline = steady_seconds() + silence_seconds;
    if (const auto outcome = child_->write(frame(Json{{"cancel", id}}.dump()), deadline);
        outcome != Subprocess::Outcome::kDone)
      fail(outcome, silence_seconds);
  }
}

Json WorkerClient::request(const std::string& method, const Json& params, double limit_seconds, const OnEvent& on_event,
                           const OnWait& on_wait) {
  const double began = steady_seconds();
  double waited = 0;  // which does not count against the limit
  const int64_t id = send(method, params, began + limit_seconds, limit_seconds);
  while (true) {
    Json message = receive(began + waited + limit_seconds, limit_seconds);
    Answer answer;
    try {
      answer = answer_to(id, std::move(message), steady_seconds() - began - waited);
    } catch (const Error& error) {
      // A kernel that faulted has taken the process's GPU context with it.
      if (error.text().code == "device-error") child_.reset();
      throw;
    }
    switch (answer.kind) {
      case Answer::Kind::kOther: break;
      case Answer::Kind::kBroken: fail_as_broken();
      case Answer::Kind::kResult: return std::move(answer.value);
      case Answer::Kind::kWait:
        waited += answer.waited;
        if (on_wait) on_wait(answer.stage, answer.waited);
        break;
      case Answer::Kind::kEvent:
        if (on_event) on_event(answer.stage, answer.fraction);
    }
  }
}

}  // namespace kw
