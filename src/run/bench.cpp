#include "run/bench.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "judge/problem_file.hpp"
#include "judge/session.hpp"
#include "run/bench_messages.hpp"
#include "run/output_files.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/scratch.hpp"
#include "support/subprocess.hpp"
#include "support/text.hpp"
#include "targets/targets.hpp"

namespace kw {

namespace fs = std::filesystem;

namespace {

// Of a problem's time what is left to timing and reporting, when nothing else is tried any more: torch.compile alone
// may take four minutes.
constexpr double kReportSeconds = 300, kReportShare = 0.5;
constexpr double kEndSeconds = 10;  // in which a child ends its own processes

// results.jsonl: one write() a line, so that a kill leaves whole lines but perhaps the last.
class ResultsFile {
 public:
  explicit ResultsFile(const std::string& path) : path_(path) {
    std::error_code error;
    if (fs::exists(path_, error)) {
      const std::string text = read_file(path_);
      for (const std::string& line : split_lines(text)) {
        std::optional<ResultLine> read = result_line_from_text(line);
        if (read && !read->key.empty()) earlier_.push_back(std::move(*read));
      }
      ends_whole_ = text.empty() || text.back() == '\n';
    }
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail();
    if (!ends_whole_) write_all("\n");
  }
  ~ResultsFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  const std::vector<ResultLine>& earlier() const { return earlier_; }
  void append(const std::string& line) { write_all(line + "\n"); }

 private:
  void write_all(const std::string& text) {
    if (write(descriptor_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) fail();
  }
  [[noreturn]] void fail() const {
    throw Error(ErrorKind::kMissing, "cannot write " + path_ + ": " + std::strerror(errno) + ".",
                "Free some space, or give another folder with --out.");
  }

  std::string path_;
  int descriptor_ = -1;
  bool ends_whole_ = true;
  std::vector<ResultLine> earlier_;
};

struct Job {
  size_t index = 0;
  BenchRequest request;
};

struct Result {
  ResultLine line;
  std::string text;  // as it is written
};

Result failed(const BenchRequest& request, const char* verdict, const std::string& reason, double seconds) {
  ResultLine line = line_of(request);
  line.report.verdict = verdict;
  line.report.reason = reason;
  line.report.seconds.total = seconds;
  return {line, to_text(line)};
}

// Did it need memory that was not to be had then?
bool lacked_memory(const ResultLine& line) {
  const Report& report = line.report;
  return report.lacked_memory.value_or(false) || report.code == kLackedMemory ||
         (line.error && line.error->text().code == kLackedMemory);
}

// Several problems at once on each device. What lacks memory then runs again when all others are done, alone on it.
class SuiteRunner {
 public:
  SuiteRunner(const BenchOptions& options, std::vector<Job> jobs, std::function<void(const Job&, Result)> on_result,
              std::function<void(const std::string&)> on_wait)
      : options_(options), jobs_(std::move(jobs)), on_result_(std::move(on_result)), on_wait_(std::move(on_wait)) {}

  void run() {
    run_all(options_.jobs);
    if (lacking_.empty()) return;
    jobs_ = std::exchange(lacking_, {});
    next_ = 0;
    run_all(1);
  }

 private:
  void run_all(int at_once) {
    at_once_ = at_once;
    std::vector<std::thread> threads;
    for (const std::string& device : options_.devices)
      for (int slot = 0; slot < at_once; ++slot) threads.emplace_back([this, device] { work(device); });
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  void work(const std::string& device) {
    std::unique_ptr<Subprocess> child;
    while (const Job* job = next()) {
      try {
        std::optional<Result> result = run_one(*job, device, child);
        if (!result) result = run_one(*job, device, child, true);  // its process was killed: who knows by whom
        const std::lock_guard lock(mutex_);
        if (at_once_ > 1 && lacked_memory(result->line)) lacking_.push_back(*job);
        else on_result_(*job, std::move(*result));
      } catch (const Interrupted&) { return; } catch (...) {
        // Not the problem's fault (the results cannot be written): the run as a whole ends.
        const std::lock_guard lock(mutex_);
        failure_ = std::current_exception();
        next_ = jobs_.size();
        return;
      }
    }
    end(child);
  }

  // A child that ends by itself clears away what processes that were killed have left.
  static void end(std::unique_ptr<Subprocess>& child) {
    if (!child) return;
    child->close_input();
    const double deadline = steady_seconds() + kEndSeconds;
    try {
      for (std::string rest; child->read_line(deadline, rest) == Subprocess::Outcome::kDone;) {}
    } catch (const Interrupted&) {
      // It is killed then.
    }
    child.reset();
  }

  const Job* next() {
    const std::lock_guard lock(mutex_);
    return next_ < jobs_.size() && !interrupted() ? &jobs_[next_++] : nullptr;
  }

  // Nothing where the process was killed, but the `last` time.
  std::optional<Result> run_one(const Job& job, const std::string& device, std::unique_ptr<Subprocess>& child,
                                bool last = false) {
    if (!child) {
      Subprocess::Options start;
      start.command = {fs::read_symlink("/proc/self/exe").string(), "bench-worker"};
      if (!device.empty()) start.environment.push_back("CUDA_VISIBLE_DEVICES=" + device);
      child = std::make_unique<Subprocess>(start);
    }
    const double began = steady_seconds();
    double deadline = began + options_.timeout_seconds;
    auto outcome = child->write(to_text(job.request) + "\n", deadline);
    while (outcome == Subprocess::Outcome::kDone) {
      std::string answer;
      outcome = child->read_line(deadline, answer);
      if (outcome != Subprocess::Outcome::kDone) break;
      std::optional<BenchReply> reply = bench_reply_from_text(answer);
      if (!reply) break;
      if (auto* line = std::get_if<ResultLine>(&*reply)) return Result{std::move(*line), std::move(answer)};
      const BenchWait& wait = std::get<BenchWait>(*reply);
      deadline += wait.seconds;
      if (on_wait_) on_wait_(wait.whom);
    }
    const double seconds = steady_seconds() - began;
    throw_if_interrupted();
    if (outcome != Subprocess::Outcome::kEnded) child->kill();  // otherwise it is to be known what ended it
    const ExitStatus status = child->wait();
    child.reset();
    throw_if_interrupted();
    if (outcome == Subprocess::Outcome::kTimedOut)
      return failed(job.request, "timeout",
                    "not done within " + std::to_string(static_cast<int>(options_.timeout_seconds)) + " s", seconds);
    if (outcome == Subprocess::Outcome::kEnded && status.signal == SIGKILL && !last) return std::nullopt;
    return failed(job.request, "crash",
                  status.signal ? std::string("kw ended with signal ") + std::to_string(status.signal) + " (" +
                                      strsignal(status.signal) + ")"
                                : "kw ended with exit code " + std::to_string(status.code),
                  seconds);
  }

  const BenchOptions& options_;
  std::vector<Job> jobs_;
  std::function<void(const Job&, Result)> on_result_;
  std::function<void(const std::string&)> on_wait_;
  std::mutex mutex_;
  size_t next_ = 0;
  int at_once_ = 1;           // on each device
  std::vector<Job> lacking_;  // memory
  std::exception_ptr failure_;
};

std::string candidate_path(const BenchOptions& options, const BenchProblem& problem) {
  std::string stem = problem.category.empty() ? problem.name : problem.category + "/" + problem.name;
  return options.out + "/candidates/" + stem + "_kw.py";
}

// Of each problem whether it runs at the size that is asked for by name: of a suite those that have sizes. Where none
// has, all do, and say that they have none.
std::vector<bool> takes_size(const std::vector<BenchProblem>& problems) {
  std::vector<bool> takes;
  for (const BenchProblem& problem : problems) {
    try {
      takes.push_back(has_sizes(read_problem_file(problem.path).source));
    } catch (const Error&) {
      takes.push_back(true);  // the child says what is wrong with it
    }
  }
  if (std::find(takes.begin(), takes.end(), true) == takes.end()) takes.assign(problems.size(), true);
  return takes;
}

BenchRequest request_for(const BenchProblem& problem, const std::string& key, const std::string& candidate,
                         const std::string& size, const BenchOptions& options) {
  BenchRequest request;
  request.problem = problem;
  request.key = key;
  OptimizeOptions& asked = request.options;
  asked.output = candidate;
  asked.target = options.target;
  asked.size = size;
  asked.policy = options.policy;
  asked.graphs = options.graphs;
  asked.baselines = options.baselines;
  asked.budget_seconds = options.budget_seconds;
  asked.try_seconds = options.timeout_seconds - std::min(kReportSeconds, kReportShare * options.timeout_seconds);
  asked.draws = options.draws;
  asked.emit_only = options.emit_only;
  asked.force = options.force;
  if (options.proposer.model.model.empty()) return request;
  request.proposer = options.proposer;
  request.proposer->fresh = options.redo;
  request.after_compiler = options.after_compiler;
  return request;
}

}  // namespace

BenchRun run_bench(const std::vector<BenchProblem>& problems, const BenchOptions& options, const OnBenchLine& on_line,
                   const std::function<void(const std::string& whom)>& on_wait) {
  std::error_code error;
  ResultsFile file(options.out + "/results.jsonl");
  std::map<std::string, ResultLine> earlier;  // the latest line of each key
  if (!options.redo)
    for (const ResultLine& line : file.earlier()) earlier[line.key + line.problem] = line;

  const std::vector<bool> is_sized = takes_size(problems);
  BenchRun run;
  std::vector<std::optional<ResultLine>> lines(problems.size());
  std::vector<Job> jobs;
  size_t done = 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    const BenchProblem& problem = problems[i];
    std::string hash, size = options.size;
    try {
      if (!is_sized[i]) size.clear();
      hash = read_problem_file(problem.path, size, target_named(options.target)).hash();
    } catch (const Error&) {
      // The child says what is wrong with it.
    }
    const std::string key = bench_key(hash, options);
    if (const auto found = earlier.find(key + problem.path); found != earlier.end()) {
      lines[i] = found->second;
      ++run.skipped;
      ++done;
      continue;
    }
    const std::string candidate = candidate_path(options, problem);
    fs::create_directories(fs::path(candidate).parent_path(), error);
    if (!options.force) check_replaceable(candidate);
    jobs.push_back({i, request_for(problem, key, candidate, size, options)});
  }
  SuiteRunner runner(
      options, std::move(jobs),
      [&](const Job& job, Result result) {
        file.append(result.text);
        on_line(result.line, ++done, problems.size());
        lines[job.index] = std::move(result.line);
      },
      on_wait);
  runner.run();
  remove_left_over_scratch();  // of children that were killed
  run.interrupted = interrupted();
  for (std::optional<ResultLine>& line : lines)
    if (line) run.lines.push_back(std::move(*line));
  return run;
}

}  // namespace kw
