#include "run/answer_judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "judge/environment.hpp"
#include "judge/judgement.hpp"
#include "llm/extract.hpp"
#include "propose/device_facts.hpp"
#include "run/optimize.hpp"
#include "run/output_files.hpp"
#include "run/report_parts.hpp"
#include "support/error.hpp"
#include "support/stamp.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kFactsSeconds = 60;

// As eager_errors() of the verdict that the record was made of, which may be an earlier run's.
std::map<std::string, double> eager_errors_of(const std::vector<JudgedOutput>& outputs) {
  std::map<std::string, double> errors;
  for (const JudgedOutput& output : outputs)
    if (std::isfinite(output.eager.norm)) {
      double& known = errors[output.output];
      known = std::max(known, output.eager.norm);
    }
  return errors;
}

}  // namespace

JudgedAnswer AnswerJudge::judge(const llm::Completion& completion, const std::string& model) {
  JudgedAnswer judged;
  const llm::Extraction extraction = llm::extract(
      {completion.text, completion.finish == "length" || completion.finish == "repetition",
       language_of(context_.target), context_.problem.source},
      [&](const std::string& source) { return facts_of(source); });
  AnswerRecord& record = judged.record;
  AnswerVerdict& outcome = record.outcome;
  record.model = model;
  record.usage = completion;
  record.repairs = extraction.repairs;
  outcome.code = extraction.fault.code;
  outcome.reason = extraction.fault.message;
  if (completion.finish == "repetition" && !extraction.fault.code.empty())
    outcome.code = "repetition", outcome.reason = "The model went round in a circle.";
  judged.feedback = feedback_on(extraction.fault);
  if (!extraction.fault.code.empty()) return judged;

  judged.source = stamped(
      fmt::format("# Made by Kernelwright with {} from {}.\n\n{}", model, context_.problem.title(), extraction.source));
  record.candidate = context_.archive.add_candidate(judged.source);
  if (const auto known = known_.find(record.candidate); known != known_.end()) {
    // Verdicts are of the source; the model wrote it again.
    outcome = known->second.outcome;
    judged.verdict = known->second.verdict;
    record.same_as_before = true;
    judged.feedback = {outcome.reason, ""};
    return judged;
  }
  const double began = seconds_now();
  const Judgement judgement = context_.judges.judge(judged.source);
  Report report;
  add_judgement(report, judgement);
  judged.seconds = seconds_now() - began;
  context_.judges.get_ready();
  record.ran = true;
  outcome = {report.verdict, report.code, report.reason, report.errors, report.notes};
  judged.feedback = feedback_on(judgement);
  context_.archive.together([&] {
    context_.archive.add(ProposalRecord{context_.problem_hash, record.candidate, std::string(context_.target.name()),
                                        "llm:" + model, emitter_version(), ""});
    judged.verdict = context_.archive.add(VerdictRecord{context_.problem_hash, record.candidate,
                                                        context_.environment_hash, context_.policy, judgement.passed(),
                                                        judgement.verdict.reason, judgement.reply});
  });
  known_[record.candidate] = {outcome, judged.verdict};
  return judged;
}

Json AnswerJudge::facts_of(const std::string& source) {
  return context_.facts.request("source_facts", {{"source", source}}, kFactsSeconds);
}

const AnswerJudge::DeviceLimits& AnswerJudge::limits() {
  if (limits_) return *limits_;
  Session plain(context_.environment, context_.progress, context_.timeout_seconds);
  plain.be_quiet(true);
  const std::string device(context_.target.tensors());
  return limits_.emplace(DeviceLimits{device_ceilings(plain, context_.archive, context_.environment_hash, device),
                                      cache_bytes(plain, context_.target)});
}

Report AnswerJudge::time(const std::string& source, const AnswerRecord& record,
                         const std::vector<std::string>& baselines, double seconds) {
  Report report;
  report.policy = context_.policy;
  report.verdict = "pass";
  try {
    MeasureRequest request;
    request.baselines = baselines;
    request.budget_seconds = seconds;
    request.policy = context_.policy;
    request.input_bytes = context_.input_bytes;
    if (record.outcome.errors) request.eager_errors = eager_errors_of(*record.outcome.errors);
    if (context_.target.profiler_sees_kernels())
      request.kernels = facts_of(source).value("kernels", std::vector<std::string>{});
    const Json reply = context_.judges.measure(source, std::move(request));
    add_measurement(report, timing_reply_from_json(reply));
    if (context_.graph) add_roofline(report, *context_.graph, limits().ceilings, limits().cache_bytes);
    context_.archive.add(
        MeasurementRecord{context_.problem_hash, record.candidate, context_.environment_hash, reply.dump()});
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
    report = {};
    report.verdict = error.kind() == ErrorKind::kCandidateFailed ? "fail" : "pass";
    report.reason = "Timing failed: " + error.text().message;
    report.code = error.text().code;
  } catch (const WorkerFailure& failure) {
    report = {};
    report.fail("worker-failed", "The process " + failure.what + " while the candidate was timed.");
  }
  return report;
}

}  // namespace kw
