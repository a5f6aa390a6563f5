#include "judge/session.hpp"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <nlohmann/json.hpp>
#include <utility>

#include "support/error.hpp"
#include "support/json_fields.hpp"
#include "support/scratch.hpp"
#include "support/text.hpp"
#include "target/target.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kHelloLimit = 180;    // importing PyTorch from a cold network disk
constexpr double kCaptureLimit = 300;  // or --timeout, where that is less
constexpr double kLongSeconds = 15;    // of a stage that runs the user's code, after which its limit is told
constexpr double kCeilingsLimit = 300;
constexpr double kCompileLimit = 600;
constexpr double kProblemAloneLimit = 120;
constexpr double kJoinLimit = 30;  // a fork's last words
constexpr int kCoresForOne = 4;    // of a machine with many, where several problems are in work at once

std::string last_lines(const std::string& log, size_t count) {
  std::vector<std::string> lines = split_lines(log);
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return join(lines, "\n");
}

Json size_json(const std::string& size) { return size.empty() ? Json() : Json(size); }

}  // namespace

void throw_for(const WorkerFailure& failure, const std::string& doing) {
  ErrorText text;
  text.message = "The Python process " + failure.what + " while " + doing + ".";
  text.detail = last_lines(failure.log, 40);
  if (failure.kind == WorkerFailure::Kind::kKilled) {
    text.code = failure.for_memory ? kLackedMemory : "killed";
    text.hint = failure.for_memory ? "Free some memory, or make the problem smaller."
                                   : "So was the one before it. Find out what ends processes here, then try again.";
    throw Error(ErrorKind::kMissing, std::move(text));
  }
  text.code = "worker-failed";
  text.hint = "Its last words: " + last_lines(failure.log, 3);
  throw Error(ErrorKind::kInternal, std::move(text));
}

Session::Session(const Environment& environment, Progress& progress, double timeout_seconds, Workers workers)
    : progress_(progress),
      worker_(WorkerOptions{environment.python, environment.module_path, {}}),
      timeout_(timeout_seconds),
      has_gpu_(environment.has_gpu()),
      cpu_threads_(environment.cpu_threads),
      card_(std::make_unique<Json>()) {
  remove_left_over_scratch();
  // On one core they would only take turns.
  if (workers == Workers::kTwo && environment.cpu_threads > 1)
    tracer_.emplace(WorkerOptions{environment.python, environment.module_path, {}});
}

Session::~Session() {
  stop();
  remove_left_over_scratch();
}

void Session::start() {
  tracer().start();
  worker_.start();
}

void Session::stop() {
  forked_.clear();
  if (tracer_) tracer_->stop();
  worker_.stop();
}

void Session::end_tracing() {
  if (!tracer_) return;
  if (forked_.contains(&*tracer_)) join(*tracer_);
  else if (forked_.empty()) tracer_->stop();
}

void Session::begin_problem(bool judged, bool compilers) {
  std::vector<std::string> methods = {"verify", "measure"};
  if (!judged) methods.clear();
  if (tracer_) fork(*tracer_, {"capture"}, false);
  else methods.push_back("capture");
  fork(worker_, methods, compilers);
}

void Session::end_problem() {
  end_tracing();
  join(worker_);
}

void Session::fork(WorkerClient& worker, const std::vector<std::string>& methods, bool compilers) {
  forked_.insert(&worker);
  try {
    worker.post("fork", {{"methods", methods}, {"compilers", compilers}}, kHelloLimit);
  } catch (const WorkerFailure&) {
    // The next request starts another process, which serves this problem alone.
  }
}

void Session::join(WorkerClient& worker) {
  forked_.erase(&worker);
  if (!worker.running()) return;
  try {
    // A process that was started in the middle of the problem has seen it, and is of no use to the next one.
    if (!worker.request("join", Json::object(), kJoinLimit).value("forked", false)) worker.stop();
  } catch (const WorkerFailure&) {
  } catch (const Error&) { worker.stop(); }
}

namespace {

// Tells once, where a stage takes long, what will end it.
class Patience {
 public:
  Patience(Progress& progress, std::string stage, double limit_seconds)
      : thread_([&progress, stage = std::move(stage), limit_seconds](const std::stop_token& stop) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any never;
          if (never.wait_for(lock, stop, std::chrono::duration<double>(kLongSeconds), [] { return false; }) ||
              stop.stop_requested())
            return;
          progress.note(stage + ": still running after " + std::to_string(static_cast<int>(kLongSeconds)) +
                        " s; it is given up after " + std::to_string(static_cast<int>(limit_seconds)) +
                        " s (--timeout SECONDS).");
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace

Json Session::ask(WorkerClient& worker, const char* stage, const std::string& method, const Json& params,
                  double limit_seconds) {
  const auto on_wait = [&](const std::string& whom, double seconds) {
    waited_ += seconds;
    progress_.waiting(whom, seconds);
  };
  if (quiet_) return worker.request(method, params, limit_seconds, {}, on_wait);
  const Stage shown(progress_, stage);
  std::optional<Patience> patience;
  if (method == "capture" || method == "verify")
    patience.emplace(progress_, stage, limit_seconds);  // the user's code may hang
  return worker.request(
      method, params, limit_seconds,
      [&](const std::string& detail, double fraction) { progress_.update(detail, fraction); }, on_wait);
}

Json Session::twice(Deaths deaths, const std::function<Json()>& ask) {
  try {
    return ask();
  } catch (const WorkerFailure& failure) {
    const bool again = deaths == Deaths::kAny ? failure.kind != WorkerFailure::Kind::kHung
                                              : failure.kind == WorkerFailure::Kind::kKilled;
    if (!again) throw;
    if (!quiet_) progress_.note("a Python process " + failure.what + "; once more with another");
  } catch (const Error& error) {
    if (error.text().code != "killed") throw;
    if (!quiet_) progress_.note(error.text().message + " Once more in another process.");
  }
  return ask();
}

Json Session::hello() {
  try {
    return twice(Deaths::kKills, [&] { return ask(worker_, "start PyTorch", "hello", Json::object(), kHelloLimit); });
  } catch (const WorkerFailure& failure) {
    ErrorText text;
    text.code = "worker-start";
    text.message = "The Python process " + failure.what + " while importing PyTorch.";
    text.hint = failure.log.empty() ? "`kw doctor` looks at what is there."
                                    : "Its last words: " + last_lines(failure.log, 3);
    text.detail = last_lines(failure.log, 40);
    throw Error(ErrorKind::kMissing, std::move(text));
  }
}

std::string Session::capture(const std::string& problem, const std::string& size, const std::string& device) {
  const double limit = std::min(kCaptureLimit, timeout_);
  try {
    const Json params = {{"problem", problem}, {"size", size_json(size)}, {"device", device}};
    const Json reply = twice(Deaths::kKills, [&] { return ask(tracer(), "capture", "capture", params, limit); });
    *card_ = member(reply, "card");
    return reply.at("graph").dump();
  } catch (const WorkerFailure& failure) {
    ErrorText text;
    text.detail = last_lines(failure.log, 40);
    text.where = problem;
    switch (failure.kind) {
      case WorkerFailure::Kind::kHung:
        text.code = "capture-hung";
        text.message = "The model did not come to an end within " + std::to_string(static_cast<int>(limit)) +
                       " s of constructing and tracing it.";
        text.hint = "Look for a loop that does not end, or for a lock, in the constructor, get_inputs() or forward.";
        break;
      case WorkerFailure::Kind::kKilled:
        if (!failure.for_memory) {
          text.code = "problem-crashed";
          text.message = "The Python process " + failure.what +
                         ", while the model was constructed and traced; so was the one before it.";
          text.hint = "Something that the file runs ends the process, or another program on this machine does.";
          break;
        }
        text.code = kLackedMemory;
        text.message =
            "The Python process was killed by the system while the model was constructed and traced, which happens "
            "when memory runs out.";
        text.hint = "Make the model or its inputs smaller, or use a machine with more memory.";
        break;
      default:
        text.code = "problem-crashed";
        text.message = "The Python process " + failure.what + " while the model was constructed and traced.";
        text.hint =
            "Something that the file runs ends the process: an extension module, os._exit, or an invalid memory "
            "access.";
    }
    throw Error(ErrorKind::kUser, std::move(text));
  }
}

uint64_t Session::secret_seed() {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
    throw Error(ErrorKind::kMissing, "the system gives no random numbers.");
  return seed >> 2;  // Python and C++ both hold it in a signed 64-bit integer
}

namespace {

Json verify_params(const VerifyRequest& request, uint64_t seed) {
  Json params = {{"problem", request.problem},         {"size", size_json(request.size)},
                 {"device", request.device},           {"seed", seed},
                 {"tolerance_policy", request.policy}, {"memory_limit_bytes", nullptr}};
  if (request.draws > 0) params["draws"] = request.draws;
  return params;
}

}  // namespace

void Session::prepare(const VerifyRequest& request) {
  if (tracer_) prepare_at_once(request);
}

void Session::prepare_at_once(const VerifyRequest& request) {
  try {
    if (!request.seed) prepared_seed_ = secret_seed();
    Json params = verify_params(request, request.seed ? *request.seed : *prepared_seed_);
    params["baselines"] = request.baselines;
    worker_.post("prepare", params, timeout_);
  } catch (const WorkerFailure&) {
    // The next request starts another process, and tells if that dies too.
  }
}

void Session::build(const std::string& candidate, const Target& target) {
  if (!tracer_) return;
  try {
    const int jobs = target.build_command().one_by_one ? std::max(1, cpu_threads_ / kCoresForOne) : 1;
    ask(*tracer_, "build", "build", {{"candidates", Json::array({candidate})}, {"jobs", jobs}}, kCompileLimit);
  } catch (const Error&) {
  } catch (const WorkerFailure&) {}
}

namespace {

// A candidate that hangs is to be told apart from a judge that does: its own time, which begins when the judge has
// started, ends earlier.
double candidate_seconds(double limit) { return limit - std::min(6.0, limit / 3); }

}  // namespace

Json Session::confinement(const std::string& device, bool is_ours, const std::vector<std::string>& secrets) {
  if (is_ours) return Json::object();
  if (!sandbox_) sandbox_.emplace();
  return sandbox_->confinement(device, secrets);
}

std::vector<std::string> Session::missing_protections(const std::string& device) {
  if (!sandbox_) sandbox_.emplace();
  std::vector<std::string> missing = sandbox_->missing(device);
  try {
    const Json params = {{"confinement", sandbox_->confinement(device, {})}};
    const Json reply = twice(Deaths::kKills,
                             [&] { return ask(worker_, "look at the sandbox", "protections", params, kHelloLimit); });
    for (const Json& what : reply["missing"]) missing.push_back(what.get<std::string>());
  } catch (const WorkerFailure& failure) { throw_for(failure, "looking at the sandbox"); }
  return missing;
}

Json Session::verify(const VerifyRequest& request) {
  const std::optional<uint64_t> prepared = std::exchange(prepared_seed_, std::nullopt);
  std::optional<uint64_t> seed = request.seed ? request.seed : prepared;
  Json params = verify_params(request, 0);
  params["candidate"] = request.candidate;
  params["input_bytes"] = request.input_bytes;
  params["confinement"] = confinement(request.device, request.is_ours, request.secrets);
  params["candidate_seconds"] = candidate_seconds(timeout_);
  params["limit_seconds"] = timeout_;
  Json reply = twice(Deaths::kAny, [&] {
    // What a process saw of the draws before it was killed is of no use to the next.
    params["seed"] = seed ? *std::exchange(seed, request.seed) : secret_seed();
    return ask(worker_, "verify", "verify", params, timeout_);
  });
  if (Json& missing = reply["missing_protections"]; missing.is_array())
    for (std::string& what : sandbox_->missing(request.device)) missing.push_back(std::move(what));
  reply["seed"] = params["seed"];
  return reply;
}

Json Session::measure(const MeasureRequest& request) {
  Json params = {{"problem", request.problem},
                 {"size", size_json(request.size)},
                 {"candidate", nullptr},
                 {"device", request.device},
                 {"baselines", request.baselines},
                 {"seed", nullptr},
                 {"budget_seconds", request.budget_seconds},
                 {"kernels", request.kernels},
                 {"tolerance_policy", request.policy}};
  if (!request.candidate.empty()) {
    params["candidate"] = request.candidate;
    params["confinement"] = confinement(request.device, request.is_ours, request.secrets);
    params["candidate_seconds"] = candidate_seconds(request.limit_seconds);
  }
  params["input_bytes"] = request.input_bytes;
  if (!request.eager_errors.empty()) params["eager_errors"] = request.eager_errors;
  const auto ask_once = [&] {
    params["seed"] = secret_seed();
    return ask(worker_, "measure", "measure", params, request.limit_seconds);
  };
  // Without a candidate it is asked whether the problem's own code ends the process.
  return twice(request.candidate.empty() ? Deaths::kKills : Deaths::kAny, ask_once);
}

Json Session::race(const RaceRequest& request) {
  Json runners = Json::array();
  for (size_t i = 0; i < request.runners.size(); ++i)
    runners.push_back(
        {{"name", std::to_string(i)}, {"path", request.runners[i].path}, {"keep", request.runners[i].keep}});
  Json params = {{"problem", request.problem},
                 {"size", size_json(request.size)},
                 {"device", request.device},
                 {"candidates", runners},
                 {"seed", request.seed},
                 {"tolerance_policy", request.policy},
                 {"budget_seconds", request.budget_seconds},
                 {"input_bytes", request.input_bytes}};
  if (!request.eager_errors.empty()) params["eager_errors"] = request.eager_errors;
  return twice(Deaths::kKills, [&] { return ask(worker_, "race", "race", params, request.limit_seconds); });
}

Json Session::ceilings(const std::string& device) {
  try {
    return twice(Deaths::kKills,
                 [&] { return ask(worker_, "measure the device", "ceilings", {{"device", device}}, kCeilingsLimit); });
  } catch (const WorkerFailure& failure) { throw_for(failure, "measuring the device"); }
}

Json Session::calibrate(const std::string& device) {
  try {
    return twice(Deaths::kKills,
                 [&] { return ask(worker_, "calibrate", "calibrate", {{"device", device}}, kCeilingsLimit); });
  } catch (const WorkerFailure& failure) { throw_for(failure, "measuring the device"); }
}

Json Session::compile_only(const std::string& candidate, const Target& target, int capability) {
  try {
    const Json params = {{"candidate", candidate}, {"target", target.name()}, {"sm", capability}};
    return twice(Deaths::kKills,
                 [&] { return ask(worker_, "compile kernels", "compile_only", params, kCompileLimit); });
  } catch (const WorkerFailure& failure) { throw_for(failure, "compiling the kernels"); }
}

std::string Session::problem_failure(const std::string& problem, const std::string& size, const std::string& device) {
  MeasureRequest request{.problem = problem,
                         .size = size,
                         .candidate = "",
                         .device = device,
                         .baselines = {"eager"},
                         .kernels = {},
                         .budget_seconds = 0.1,
                         .limit_seconds = std::min(kProblemAloneLimit, timeout_),
                         .input_bytes = 0,
                         .eager_errors = {}};
  try {
    measure(request);
    return "";
  } catch (const WorkerFailure& failure) {
    return "the Python process " + failure.what + ".";
  } catch (const Error& error) { return error.text().message; }
}

}  // namespace kw
