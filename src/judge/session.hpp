// The workers and what is asked of them, each with its time limit and with failures put into words.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "judge/environment.hpp"
#include "judge/sandbox.hpp"
#include "measure/worker_client.hpp"
#include "support/progress.hpp"

namespace kw {

class Target;

inline constexpr const char* kLackedMemory = "out-of-memory";  // code of errors (python/kernelwright/errors.py)
constexpr double kShortWait = 0.05;                            // seconds: less is the locks' own time and in no report

struct VerifyRequest {
  std::string problem, size, candidate, device, policy = "reference";  // size: of the problem's SIZES; empty where it
                                                                       // has none
  std::optional<uint64_t> seed;                                        // none: a secret one
  int draws = 0;                                                       // 0: the worker's default
  int64_t input_bytes = 0;  // plan/cost.hpp: bytes_in_work; processes take turns with a GPU's memory by it
  std::vector<std::string> baselines = {};  // what will be timed afterwards, to be prepared as well
  bool is_ours = false;  // the compiler has made the candidate just now: it needs no sandbox, and what it compiles may
                         // be kept
  std::vector<std::string> secrets = {};  // environment variables that the candidate is not to see
};

struct MeasureRequest {
  std::string problem, size, candidate;      // candidate may be empty
  std::string device, policy = "reference";  // policy: by which timed calls are judged
  std::vector<std::string> baselines, kernels;
  double budget_seconds = 10;
  double limit_seconds = 900;                  // torch.compile of a large model takes minutes
  int64_t input_bytes = 0;                     // as in VerifyRequest
  std::map<std::string, double> eager_errors;  // per output, norm-relative, as verified: what the results after timing
                                               // may differ by
  bool is_ours = false;                        // as in VerifyRequest
  std::vector<std::string> secrets = {};
};

// One candidate of a race; `keep` it loaded for the next one.
struct Runner {
  std::string path;
  bool keep = false;
};

struct RaceRequest {
  std::string problem, size, device, policy = "reference";
  std::vector<Runner> runners;  // the first is the anchor; none: what races keep loaded is given back
  uint64_t seed = 0;
  double budget_seconds = 1, limit_seconds = 120;
  int64_t input_bytes = 0;
  std::map<std::string, double> eager_errors;  // as MeasureRequest has them
};

class Session {
 public:
  // With kTwo, a process of its own traces the model and builds kernels, while the other makes what candidates are
  // verified against.
  enum class Workers { kOne, kTwo };

  // `timeout_seconds` is how long the user's own code may take, to be traced or to be verified.
  Session(const Environment& environment, Progress& progress, double timeout_seconds = 600,
          Workers workers = Workers::kOne);
  ~Session();  // what workers that were killed have left is removed

  void start();  // the workers begin to import PyTorch
  void stop();
  // From here to end_problem() forks of the workers answer, so that the next problem finds processes that have imported
  // everything and seen nothing. `judged`: candidates will be, too; `compilers`: torch.compile will be timed. Does not
  // wait.
  void begin_problem(bool judged, bool compilers);
  void end_problem();
  nlohmann::ordered_json hello();
  // The exported graph as the protocol's JSON text. A process that dies or hangs here is the problem's doing: kUser.
  std::string capture(const std::string& problem, const std::string& size, const std::string& device);
  // The GPU that the last capture ran on, as the protocol has it; null where it was none.
  const nlohmann::ordered_json& card() const { return *card_; }
  // With two workers: makes what the first verify() of the same problem, device, policy, seed and draws needs beside
  // the candidate. Does not wait.
  void prepare(const VerifyRequest& request);
  // The same with whatever workers there are, for a session that only waits for a candidate.
  void prepare_at_once(const VerifyRequest& request);
  // With two workers: compiles the candidate's kernels, so that no device's lock is held meanwhile. What does not
  // compile shows in its verification.
  void build(const std::string& candidate, const Target& target);
  // Gives back the memory and the GPU context of the process that traced.
  void end_tracing();
  nlohmann::ordered_json verify(const VerifyRequest& request);    // may throw WorkerFailure
  nlohmann::ordered_json measure(const MeasureRequest& request);  // may throw WorkerFailure
  nlohmann::ordered_json race(const RaceRequest& request);        // may throw WorkerFailure
  // What a candidate's sandbox lacks on this machine, in words.
  std::vector<std::string> missing_protections(const std::string& device);
  nlohmann::ordered_json ceilings(const std::string& device);
  nlohmann::ordered_json calibrate(const std::string& device);
  nlohmann::ordered_json compile_only(const std::string& candidate, const Target& target, int capability);

  // Does the problem alone (eager, without a candidate) run? Empty, or what happens; to know whose fault a dead worker
  // is.
  std::string problem_failure(const std::string& problem, const std::string& size, const std::string& device);

  static uint64_t secret_seed();

  // While set, requests do not show as stages of their own.
  void be_quiet(bool quiet) { quiet_ = quiet; }

  // What went by while other processes had the device (docs/measuring.md). No time limit counts it.
  double waited_seconds() const { return waited_; }

  // Whether what is made for a GPU can run here.
  bool has_gpu() const { return has_gpu_; }

 private:
  nlohmann::ordered_json confinement(const std::string& device, bool is_ours, const std::vector<std::string>& secrets);
  // `ask`, and once more with new processes where one was killed meanwhile; with kAny also where the worker came to any
  // other end. Nobody can tell from a single SIGKILL whose fault it was.
  enum class Deaths { kKills, kAny };
  nlohmann::ordered_json twice(Deaths deaths, const std::function<nlohmann::ordered_json()>& ask);
  nlohmann::ordered_json ask(WorkerClient& worker, const char* stage, const std::string& method,
                             const nlohmann::ordered_json& params, double limit_seconds);
  WorkerClient& tracer() { return tracer_ ? *tracer_ : worker_; }
  void fork(WorkerClient& worker, const std::vector<std::string>& methods, bool compilers);
  void join(WorkerClient& worker);
  Progress& progress_;
  WorkerClient worker_;
  std::optional<WorkerClient> tracer_;
  double timeout_;
  bool has_gpu_;
  int cpu_threads_;
  std::unique_ptr<nlohmann::ordered_json> card_;
  std::optional<uint64_t> prepared_seed_;
  std::optional<Sandbox> sandbox_;  // made with the first candidate
  std::set<WorkerClient*> forked_;
  bool quiet_ = false;
  double waited_ = 0;
};

// For requests that no candidate takes part in: throws kMissing, or kInternal when it makes no sense.
[[noreturn]] void throw_for(const WorkerFailure& failure, const std::string& doing);

}  // namespace kw
