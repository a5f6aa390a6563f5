#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "judge/environment.hpp"
#include "judge/problem_file.hpp"
#include "judge/session.hpp"
#include "propose/sampling.hpp"
#include "run/auto.hpp"
#include "run/bench.hpp"
#include "run/optimize.hpp"
#include "support/error.hpp"
#include "support/error_json.hpp"
#include "support/interrupt.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

// A worker that has only exported modules serves the next problem too, which spares the seconds of importing PyTorch.
// One that has run a candidate does not: what that left behind (memory, threads, a broken CUDA context) would be the
// next problem's.
constexpr int kProblemsPerWorker = 50;

// What both kinds of proposers are told of a problem: OptimizeOptions and GenerateOptions have these in common.
template <typename Options>
void read_common(const Json& request, Options& options) {
  options.problem = request.at("problem");
  options.output = request.at("output");
  options.target = request.at("target");
  options.size = request.value("size", "");
  options.policy = request.at("policy");
  options.baselines = request.at("baselines").get<std::vector<std::string>>();
  options.budget_seconds = request.at("budget");
  options.min_speedup = 0;  // a suite keeps and counts what is right, however fast
  options.draws = request.at("draws");
  options.force = request.value("force", false);
}

void write_line(const Json& json) {
  const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0)
    throw Error(ErrorKind::kMissing, "the bench that asked is gone.");
}

// Of all progress only the waits: the time limit of a problem does not count them, and somebody should know.
class TellWaits : public Progress {
 public:
  void waiting(const std::string& whom, double seconds) override {
    write_line({{"waiting", whom}, {"seconds", seconds}});
  }
};

class BenchWorker {
 public:
  Json answer(const Json& request) {
    const double began = seconds_now();
    Json reply;
    bool clean = false;
    try {
      const bool auto_proposer = request.value("after_compiler", false);
      if (request.contains("proposer") && !auto_proposer) return propose(request);
      OptimizeOptions options;
      read_common(request, options);
      options.emit_only = request.at("emit_only");
      options.graphs = request.value("graphs", "auto");
      options.timeout_seconds = request.value("timeout", 600.0);
      options.try_seconds = request.value("try_seconds", 0.0);
      options.fresh = true;  // the run's own lines are what it resumes from
      if (auto_proposer) return propose_too(request, options);
      // Modules that the file imports from its folder stay loaded in the worker; another folder's may have the same
      // names.
      const bool has_imports = !read_problem_file(options.problem).imports.empty();
      if (!session_ || has_imports)
        session_ = std::make_unique<Session>(find_environment(), progress_, options.timeout_seconds);
      reply = optimize(options, progress_, session_.get());
      clean = options.emit_only && !has_imports && ++served_ % kProblemsPerWorker != 0;
    } catch (const Error& error) {
      reply = {{"verdict", "error"},
               {"reason", error.text().message},
               {"exit_code", error.exit_code()},
               {"text", render(error)},
               {"error", to_json(error)}};
      clean = error.kind() == ErrorKind::kUser && error.text().code != "capture-hung";
    } catch (const Interrupted&) { throw; } catch (const std::exception& error) {
      reply = {{"verdict", "error"},
               {"reason", error.what()},
               {"exit_code", 4},
               {"error", to_json(Error(ErrorKind::kInternal, error.what()))}};
    }
    if (!clean) session_.reset();
    if (!reply.contains("seconds")) reply["seconds"] = {{"total", seconds_now() - began}};
    return reply;
  }

 private:
  Json propose_too(const Json& request, const OptimizeOptions& options) {
    const GenerateOptions model = generate_options(request);
    Json report = optimize_with_model(options, model, progress_, threads_.get());
    for (const Json& one : report["proposers"])
      if (one.contains("error")) threads_.reset();
    return report;
  }

  // A language model's turn. It stays loaded from problem to problem; every sample is in the archive, so that a run
  // that was broken off goes on.
  Json propose(const Json& request) {
    GenerateOptions options = generate_options(request);
    read_common(request, options);
    options.emit_only = request.at("emit_only");
    GenerateOutcome outcome = generate(options, progress_, threads_.get());
    if (outcome.fault || outcome.interrupted) threads_.reset();
    if (outcome.fault) throw *outcome.fault;
    return outcome.report;
  }

  // And the threads that ask, where there is a model to ask.
  GenerateOptions generate_options(const Json& request) {
    GenerateOptions options = generate_options_from(request.at("proposer"));
    options.fresh = request.value("fresh", false);
    if (!threads_ && !(options.edits && options.model.model == kSearchAsModel)) {
      const Environment environment = find_environment();
      threads_ = std::make_unique<SamplingThreads>(
          llm::open_backends(options.model, {environment.python, environment.module_path}));
    }
    return options;
  }

  TellWaits progress_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<SamplingThreads> threads_;
  int served_ = 0;
};

}  // namespace

int serve_bench_requests() {
  BenchWorker worker;
  for (std::string line; std::getline(std::cin, line);) write_line(worker.answer(Json::parse(line)));
  return 0;
}

}  // namespace kw
