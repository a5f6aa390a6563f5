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
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "judge/environment.hpp"
#include "judge/problem_file.hpp"
#include "run/output_files.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/scratch.hpp"
#include "support/subprocess.hpp"
#include "support/text.hpp"

namespace kw {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr int kLineVersion = 1;
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
        Json json = Json::parse(line, nullptr, false);
        if (json.is_object() && json.contains("key")) earlier_.push_back(std::move(json));
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

  const std::vector<Json>& earlier() const { return earlier_; }
  void append(const Json& line) { write_all(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"); }

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
  std::vector<Json> earlier_;
};

// What must agree for an earlier line to stand.
Json key_of(const std::string& source_hash, const BenchOptions& options) {
  Json key = {{"source", source_hash},          {"kw", emitter_version()},
              {"target", options.target},       {"policy", options.policy},
              {"emit_only", options.emit_only}, {"device", options.devices.front() == "cpu" ? "cpu" : "cuda"}};
  if (options.target == "triton") key["graphs"] = options.graphs;
  if (options.proposer.model.model.empty()) return key;
  key["proposer"] = to_json(options.proposer);
  key["after_compiler"] = options.after_compiler;
  for (const char* price : {"price_read", "price_written"}) key["proposer"].erase(price);
  return key;
}

struct Job {
  size_t index = 0;
  Json request, line;  // line: what is known before the run
};

Json failed_line(const char* verdict, const std::string& reason, double seconds) {
  return {{"verdict", verdict}, {"reason", reason}, {"seconds", {{"total", seconds}}}};
}

class SuiteRunner {
 public:
  SuiteRunner(const BenchOptions& options, std::vector<Job> jobs, std::function<void(const Job&, Json)> on_result,
              std::function<void(const std::string&)> on_wait)
      : options_(options), jobs_(std::move(jobs)), on_result_(std::move(on_result)), on_wait_(std::move(on_wait)) {}

  void run() {
    std::vector<std::thread> threads;
    for (const std::string& device : options_.devices)
      for (int slot = 0; slot < options_.jobs; ++slot) threads.emplace_back([this, device] { work(device); });
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void work(const std::string& device) {
    std::unique_ptr<Subprocess> child;
    while (const Job* job = next()) {
      try {
        std::optional<Json> result = run_one(*job, device, child);
        if (!result) result = run_one(*job, device, child, true);  // its process was killed: who knows by whom
        const std::lock_guard lock(mutex_);
        on_result_(*job, std::move(*result));
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
  std::optional<Json> run_one(const Job& job, const std::string& device, std::unique_ptr<Subprocess>& child,
                              bool last = false) {
    if (!child) {
      Subprocess::Options start;
      start.command = {fs::read_symlink("/proc/self/exe").string(), "bench-worker"};
      if (device != "cpu" && !device.empty()) start.environment.push_back("CUDA_VISIBLE_DEVICES=" + device);
      child = std::make_unique<Subprocess>(start);
    }
    const double began = steady_seconds();
    double deadline = began + options_.timeout_seconds;
    auto outcome = child->write(job.request.dump() + "\n", deadline);
    while (outcome == Subprocess::Outcome::kDone) {
      std::string answer;
      outcome = child->read_line(deadline, answer);
      if (outcome != Subprocess::Outcome::kDone) break;
      Json result = Json::parse(answer, nullptr, false);
      if (!result.is_object()) break;
      if (!result.contains("waiting")) return result;
      deadline += result["seconds"].get<double>();
      if (on_wait_) on_wait_(result["waiting"]);
    }
    const double seconds = steady_seconds() - began;
    throw_if_interrupted();
    if (outcome != Subprocess::Outcome::kEnded) child->kill();  // otherwise it is to be known what ended it
    const ExitStatus status = child->wait();
    child.reset();
    throw_if_interrupted();
    if (outcome == Subprocess::Outcome::kTimedOut)
      return failed_line(
          "timeout", "not done within " + std::to_string(static_cast<int>(options_.timeout_seconds)) + " s", seconds);
    if (outcome == Subprocess::Outcome::kEnded && status.signal == SIGKILL && !last) return std::nullopt;
    return failed_line("crash",
                       status.signal ? std::string("kw ended with signal ") + std::to_string(status.signal) + " (" +
                                           strsignal(status.signal) + ")"
                                     : "kw ended with exit code " + std::to_string(status.code),
                       seconds);
  }

  const BenchOptions& options_;
  std::vector<Job> jobs_;
  std::function<void(const Job&, Json)> on_result_;
  std::function<void(const std::string&)> on_wait_;
  std::mutex mutex_;
  size_t next_ = 0;
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

}  // namespace

BenchRun run_bench(const std::vector<BenchProblem>& problems, const BenchOptions& options, const OnBenchLine& on_line,
                   const std::function<void(const std::string& whom)>& on_wait) {
  std::error_code error;
  ResultsFile file(options.out + "/results.jsonl");
  std::map<std::string, Json> earlier;  // the latest line of each key
  if (!options.redo)
    for (const Json& line : file.earlier()) earlier[line["key"].dump() + line.value("problem", "")] = line;

  const std::vector<bool> is_sized = takes_size(problems);
  BenchRun run;
  std::vector<Json> lines(problems.size());
  std::vector<Job> jobs;
  size_t done = 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    const BenchProblem& problem = problems[i];
    Json line = {
        {"version", kLineVersion}, {"problem", problem.path}, {"name", problem.name}, {"category", problem.category}};
    std::string hash, size = options.size;
    try {
      if (!is_sized[i]) size.clear();
      hash = read_problem_file(problem.path, size, options.target).hash();
    } catch (const Error&) {
      // The child says what is wrong with it.
    }
    line["key"] = key_of(hash, options);
    if (const auto found = earlier.find(line["key"].dump() + problem.path); found != earlier.end()) {
      lines[i] = found->second;
      ++run.skipped;
      ++done;
      continue;
    }
    const std::string candidate = candidate_path(options, problem);
    fs::create_directories(fs::path(candidate).parent_path(), error);
    if (!options.force) check_replaceable(candidate);
    Json request = {{"problem", problem.path},        {"output", candidate},
                    {"target", options.target},       {"size", size},
                    {"policy", options.policy},       {"budget", options.budget_seconds},
                    {"emit_only", options.emit_only}, {"baselines", options.baselines},
                    {"draws", options.draws},         {"graphs", options.graphs}};
    if (!options.proposer.model.model.empty())
      request.update({{"proposer", to_json(options.proposer)}, {"after_compiler", options.after_compiler}});
    request["fresh"] = options.redo;
    request["force"] = options.force;
    request["try_seconds"] = options.timeout_seconds - std::min(kReportSeconds, kReportShare * options.timeout_seconds);
    jobs.push_back({i, std::move(request), std::move(line)});
  }
  SuiteRunner runner(
      options, std::move(jobs),
      [&](const Job& job, Json result) {
        Json line = job.line;
        for (const auto& [key, value] : result.items())
          if (!line.contains(key)) line[key] = value;
        file.append(line);
        lines[job.index] = line;
        on_line(line, ++done, problems.size());
      },
      on_wait);
  runner.run();
  remove_left_over_scratch();  // of children that were killed
  run.interrupted = interrupted();
  for (Json& line : lines)
    if (line.is_object()) run.lines.push_back(std::move(line));
  return run;
}

}  // namespace kw
