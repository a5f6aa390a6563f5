#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "judge/environment.hpp"
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
    bool is_sound = false;
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
      if (!session_)
        session_ = std::make_unique<Session>(find_environment(), progress_, options.timeout_seconds,
                                             options.emit_only ? Session::Workers::kOne : Session::Workers::kTwo);
      const bool compilers = options.budget_seconds > 0 && std::ranges::count(options.baselines, "compile") > 0;
      session_->begin_problem(!options.emit_only, compilers);
      reply = to_json(optimize(options, progress_, session_.get()));
      is_sound = true;
    } catch (const Error& error) {
      reply = {{"verdict", "error"},
               {"reason", error.text().message},
               {"exit_code", error.exit_code()},
               {"text", render(error)},
               {"error", to_json(error)}};
      is_sound = error.kind() != ErrorKind::kInternal;
    } catch (const Interrupted&) { throw; } catch (const std::exception& error) {
      reply = {{"verdict", "error"},
               {"reason", error.what()},
               {"exit_code", 4},
               {"error", to_json(Error(ErrorKind::kInternal, error.what()))}};
    }
    if (!is_sound) session_.reset();
    else if (session_) session_->end_problem();
    if (!reply.contains("seconds")) reply["seconds"] = {{"total", seconds_now() - began}};
    return reply;
  }

 private:
  Json propose_too(const Json& request, const OptimizeOptions& options) {
    const GenerateOptions model = generate_options(request);
    const Report report = optimize_with_model(options, model, progress_, threads_.get());
    if (std::ranges::any_of(report.proposers, [](const ProposerOutcome& one) { return one.error.has_value(); }))
      threads_.reset();
    return to_json(report);
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
    return to_json(outcome.report);
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
};

}  // namespace

int serve_bench_requests() {
  BenchWorker worker;
  for (std::string line; std::getline(std::cin, line);) write_line(worker.answer(Json::parse(line)));
  return 0;
}

}  // namespace kw
