// verify, measure and device: what is asked of candidates that exist already, and of the machine.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "archive/archive.hpp"
#include "judge/environment.hpp"
#include "judge/judgement.hpp"
#include "judge/problem_file.hpp"
#include "judge/session.hpp"
#include "targets/targets.hpp"
#include "propose/captured.hpp"
#include "propose/device_facts.hpp"
#include "run/optimize.hpp"
#include "run/report_parts.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

// A candidate that is not even a text file is wrong input of the user's, not a candidate that fails.
ProblemFile read_candidate_file(const std::string& path) { return read_problem_file(path); }

void store_verdict(const ProblemFile& problem, const ProblemFile& candidate, const Environment& environment,
                   const Report& report, const Judgement& judgement) {
  Archive archive;
  archive.together([&] {
    const std::string problem_hash = archive.add(
        ProblemRecord{problem.name, problem.path, problem.source_with_imports});
    const std::string candidate_hash = archive.add_candidate(candidate.source);
    const std::string environment_hash = archive.add_environment(environment.description_json());
    archive.add(ProposalRecord{problem_hash, candidate_hash, report.target, "person", emitter_version(), ""});
    archive.add(VerdictRecord{problem_hash, candidate_hash, environment_hash, report.policy, judgement.passed(),
                              judgement.verdict.reason, judgement.reply});
  });
}

}  // namespace

Report verify_candidate(const VerifyOptions& options, Progress& progress) {
  const double began = seconds_now();
  read_problem_file(options.problem);  // what is wrong with a file comes before what is wrong with the machine
  const ProblemFile candidate = read_candidate_file(options.candidate);
  const Environment environment = find_environment();
  const Target& target = resolve_target(options.target, environment, true);
  const ProblemFile problem = read_problem_file(options.problem, options.size, target);
  const std::string device(target.tensors());
  Report report = report_on("verify", problem, std::string(target.name()));
  Session session(environment, progress, options.timeout_seconds);
  const Judgement judgement = judge(session, {.problem = problem.path,
                                              .size = problem.size,
                                              .candidate = candidate.path,
                                              .device = device,
                                              .policy = options.policy,
                                              .seed = options.seed,
                                              .draws = options.draws,
                                              .input_bytes = 0});
  add_judgement(report, judgement);
  store_verdict(problem, candidate, environment, report, judgement);
  report.candidate = candidate.path;
  report.seconds.total = seconds_now() - began;
  return report;
}

Report measure_problem(const MeasureOptions& options, Progress& progress) {
  const double began = seconds_now();
  read_problem_file(options.problem);
  if (!options.candidate.empty()) read_candidate_file(options.candidate);
  const Environment environment = find_environment();
  const Target& target = resolve_target(options.target, environment, true);
  const ProblemFile problem = read_problem_file(options.problem, options.size, target);
  const std::string device(target.tensors());
  Archive archive;
  const std::string environment_hash = archive.add_environment(environment.description_json());
  Session session(environment, progress, options.timeout_seconds);
  session.start();
  const Graph graph = captured_graph(session, problem.path, problem.size, device);
  Report report = report_on("measure", problem, std::string(target.name()));
  Json reply;
  try {
    reply = session.measure({.problem = problem.path,
                             .size = problem.size,
                             .candidate = options.candidate,
                             .device = device,
                             .baselines = options.baselines,
                             .kernels = {},
                             .budget_seconds = options.budget_seconds,
                             .limit_seconds = options.timeout_seconds,
                             .input_bytes = 0,
                             .eager_errors = {}});
  } catch (const WorkerFailure& failure) {
    if (options.candidate.empty())
      throw Error(ErrorKind::kUser, ErrorText{.message = "The Python process " + failure.what + " while the model ran.",
                                              .where = problem.path,
                                              .source = "",
                                              .hint = "Run Model with get_inputs() in plain PyTorch first.",
                                              .detail = failure.log,
                                              .code = "problem-crashed"});
    throw Error(ErrorKind::kCandidateFailed,
                ErrorText{.message = "The process " + failure.what + " while candidate and baselines were timed.",
                          .where = options.candidate,
                          .source = "",
                          .hint = "`kw verify` says whether it is the candidate.",
                          .detail = failure.log,
                          .code = "worker-failed"});
  }
  add_measurement(report, timing_reply_from_json(reply));
  add_roofline(report, graph, device_ceilings(session, archive, environment_hash, device),
               cache_bytes(session, target));
  archive.together([&] {
    const std::string problem_hash = archive.add(
        ProblemRecord{problem.name, problem.path, problem.source_with_imports});
    const std::string candidate_hash = options.candidate.empty() ? ""
                                                                 : archive.add_candidate(read_file(options.candidate));
    archive.add(MeasurementRecord{problem_hash, candidate_hash, environment_hash, reply.dump()});
  });
  if (!options.candidate.empty()) report.candidate = fs::absolute(options.candidate).lexically_normal().string();
  if (session.waited_seconds() > kShortWait) report.seconds.add("waiting", session.waited_seconds());
  report.seconds.total = seconds_now() - began;
  return report;
}

DeviceReport measure_device(const std::string& asked, bool fresh, bool calibrate, Progress& progress) {
  const Environment environment = find_environment();
  const Target& target = resolve_target(asked, environment, true);
  Archive archive;
  Session session(environment, progress);
  const std::string environment_hash = archive.add_environment(environment.description_json()),
                    device(target.tensors());
  const auto known = fresh ? std::nullopt : known_ceilings(archive, environment_hash, device);
  DeviceReport report{.target = std::string(target.name()),
                      .ceilings = known ? *known : measure_ceilings(session, archive, environment_hash, device),
                      .from_archive = known.has_value(),
                      .calibration = std::nullopt};
  if (!calibrate) return report;
  if (!fresh) report.calibration = known_calibration(archive, environment_hash, device);
  if (!report.calibration) report.calibration = measure_calibration(session, archive, environment_hash, device);
  return report;
}

}  // namespace kw
