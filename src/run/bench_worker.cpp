#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "judge/environment.hpp"
#include "judge/session.hpp"
#include "propose/sampling.hpp"
#include "run/auto.hpp"
#include "run/bench_messages.hpp"
#include "run/optimize.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"

namespace kw {

namespace {

void write_line(const std::string& text) {
  const std::string line = text + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0)
    throw Error(ErrorKind::kMissing, "the bench that asked is gone.");
}

// Of all progress only the waits: the time limit of a problem does not count them, and somebody should know.
class TellWaits : public Progress {
 public:
  void waiting(const std::string& whom, double seconds) override { write_line(to_text(BenchWait{whom, seconds})); }
};

class BenchWorker {
 public:
  ResultLine answer(const BenchRequest& request) {
    const double began = seconds_now();
    ResultLine line = line_of(request);
    Report& report = line.report;
    bool is_sound = false;
    const auto fail = [&](const Error& error) {
      report = {};
      report.verdict = "error";
      report.reason = error.text().message;
      line.error = error;
      is_sound = error.kind() != ErrorKind::kInternal;
    };
    try {
      report = run(request);
      is_sound = true;
    } catch (const Error& error) {
      fail(error);
      line.error_text = render(error);
    } catch (const Interrupted&) { throw; } catch (const std::exception& error) {
      fail(Error(ErrorKind::kInternal, error.what()));
    }
    if (!is_sound) session_.reset();
    else if (session_) session_->end_problem();
    if (report.seconds.stages.empty() && !report.seconds.total) report.seconds.total = seconds_now() - began;
    return line;
  }

 private:
  Report run(const BenchRequest& request) {
    OptimizeOptions options = request.options;
    options.min_speedup = 0;  // a suite keeps and counts what is right, however fast
    options.fresh = true;     // the run's own lines are what it resumes from
    if (request.proposer) {
      load(*request.proposer);
      return request.after_compiler ? propose_too(options, *request.proposer) : propose(options, *request.proposer);
    }
    if (!session_)
      session_ = std::make_unique<Session>(find_environment(), progress_, options.timeout_seconds,
                                           options.emit_only ? Session::Workers::kOne : Session::Workers::kTwo);
    const bool compilers = options.budget_seconds > 0 && std::ranges::count(options.baselines, "compile") > 0;
    session_->begin_problem(!options.emit_only, compilers);
    return optimize(options, progress_, session_.get());
  }

  // The threads that ask, where there is a model to ask. It stays loaded from problem to problem.
  void load(const GenerateOptions& model) {
    if (threads_ || (model.edits && model.model.model == kSearchAsModel)) return;
    const Environment environment = find_environment();
    threads_ = std::make_unique<SamplingThreads>(
        llm::open_backends(model.model, {environment.python, environment.module_path}));
  }

  Report propose_too(const OptimizeOptions& options, const GenerateOptions& model) {
    Report report = optimize_with_model(options, model, progress_, threads_.get());
    if (std::ranges::any_of(report.proposers, [](const ProposerOutcome& one) { return one.error.has_value(); }))
      threads_.reset();
    return report;
  }

  // Every sample is in the archive, so that a run that was broken off goes on.
  Report propose(const OptimizeOptions& asked, GenerateOptions options) {
    options.problem = asked.problem;
    options.output = asked.output;
    options.target = asked.target;
    options.size = asked.size;
    options.policy = asked.policy;
    options.baselines = asked.baselines;
    options.budget_seconds = asked.budget_seconds;
    options.min_speedup = asked.min_speedup;
    options.draws = asked.draws;
    options.emit_only = asked.emit_only;
    options.force = asked.force;
    GenerateOutcome outcome = generate(options, progress_, threads_.get());
    if (outcome.fault || outcome.interrupted) threads_.reset();
    if (outcome.fault) throw *outcome.fault;
    return std::move(outcome.report);
  }

  TellWaits progress_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<SamplingThreads> threads_;
};

}  // namespace

int serve_bench_requests() {
  BenchWorker worker;
  for (std::string line; std::getline(std::cin, line);)
    write_line(to_text(worker.answer(bench_request_from_text(line))));
  return 0;
}

}  // namespace kw
