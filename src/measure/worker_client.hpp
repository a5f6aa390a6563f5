// The parent's side of docs/worker-protocol.md: starts `python -m kernelwright.worker` and talks with it. The child may
// crash, hang or be killed at any moment; that leaves request() as a WorkerFailure, which callers turn into a verdict.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "support/subprocess.hpp"

namespace kw {

struct WorkerOptions {
  std::string python;                    // executable
  std::string module_path;               // put before PYTHONPATH
  std::vector<std::string> environment;  // more variables, "CUDA_VISIBLE_DEVICES=2"
};

// Why a request got no reply. Not an Error: whether it is the candidate's fault or the problem's is the caller's to
// say.
struct WorkerFailure {
  enum class Kind {
    kCrashed,
    kHung,
    kKilled /* SIGKILL from outside: the kernel's out-of-memory killer */,
    kExited,
    kBrokenProtocol
  };
  Kind kind = Kind::kCrashed;
  std::string what;        // "crashed with signal 11 (Segmentation fault)", "gave no answer within 300 s"
  std::string log;         // the end of what it wrote to standard error
  bool for_memory = true;  // kKilled: false where the kernel has ended nothing for want of memory meanwhile
};

class WorkerClient {
 public:
  using OnEvent = std::function<void(const std::string& stage, double fraction)>;
  // While the child waits for its turn with a device: for whom ("" when it has it), and how long since it said so last.
  using OnWait = std::function<void(const std::string& whom, double seconds)>;

  explicit WorkerClient(WorkerOptions options);
  ~WorkerClient();

  // Sends a request and waits for its reply; starts the child where there is none. Throws kw::Error for an error reply
  // (by its kind), WorkerFailure when the child is gone or has not answered after `limit_seconds` without waits (it is
  // killed; the next request starts a new one), and Interrupted.
  nlohmann::ordered_json request(const std::string& method, const nlohmann::ordered_json& params, double limit_seconds,
                                 const OnEvent& on_event = {}, const OnWait& on_wait = {});

  // The same for a streamed method: `on_event` gets each event whole; once it returns false the child is told to come
  // to an end. The limit is on the silence between two messages.
  using OnStreamed = std::function<bool(const nlohmann::ordered_json& event)>;
  nlohmann::ordered_json stream(const std::string& method, const nlohmann::ordered_json& params, double silence_seconds,
                                const OnStreamed& on_event);

  // Sends a request and leaves its reply unread: for work whose failure shows when its result is asked for.
  void post(const std::string& method, const nlohmann::ordered_json& params, double limit_seconds);

  void start();  // so that it imports PyTorch while the caller does something else
  void stop();
  bool running() const { return child_ != nullptr; }

 private:
  [[noreturn]] void fail_as_broken();
  [[noreturn]] void fail(Subprocess::Outcome outcome, double limit_seconds);
  int64_t send(const std::string& method, const nlohmann::ordered_json& params, double deadline, double limit_seconds);
  nlohmann::ordered_json receive(double deadline, double limit_seconds);

  WorkerOptions options_;
  std::unique_ptr<Subprocess> child_;
  int64_t last_id_ = 0;
  int64_t memory_kills_ = -1;  // when the child was started
};

}  // namespace kw
