#include "judge/judgement.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "support/error.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

Judgement failure(const VerifyRequest& request, const std::string& code, const std::string& reason,
                  const std::string& detail) {
  Judgement judgement;
  judgement.verdict = failed_verdict(policy_of(request.policy), code.empty() ? "failed" : code, reason, detail);
  return judgement;
}

// What would be timed is eager itself.
void reject_original(Judgement& judgement) {
  if (!judgement.passed() || !judgement.figures->runs_original) return;
  judgement.verdict.pass = false;
  judgement.verdict.code = "runs-original";
  judgement.verdict.reason = "On the problem's own inputs the original module ran instead of its kernels: " +
                             *judgement.figures->runs_original + ".";
}

// Where the process that judges ended twice; where it hung, the candidate used up the time.
std::string reason_of(const WorkerFailure& failure) {
  if (failure.kind == WorkerFailure::Kind::kHung) return "The candidate " + failure.what + ".";
  return "The process that judges " + failure.what +
         ", twice, while it verified this candidate, and not while it ran the model alone.";
}

}  // namespace

Judgement judgement_of(const Json& reply, Policy policy) {
  Judgement judgement;
  judgement.figures = figures_from_json(reply);
  judgement.verdict = judge(*judgement.figures, policy);
  judgement.reply = reply.dump(-1, ' ', false, Json::error_handler_t::replace);
  return judgement;
}

Judgement judge(Session& session, const VerifyRequest& request) {
  try {
    Judgement judgement = judgement_of(session.verify(request), policy_of(request.policy));
    if (request.is_ours) reject_original(judgement);
    return judgement;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCandidateFailed) throw;
    const ErrorText& text = error.text();
    Judgement judgement = failure(request, text.code, text.message, text.detail);
    judgement.where = text.where;
    judgement.source = text.source;
    judgement.hint = text.hint;
    return judgement;
  } catch (const WorkerFailure& lost) {
    if (const std::string what = session.problem_failure(request.problem, request.size, request.device); !what.empty())
      throw Error(ErrorKind::kUser, ErrorText{.message = "The model itself cannot be run: " + what,
                                              .where = request.problem,
                                              .source = "",
                                              .hint = "Run Model with get_inputs() in plain PyTorch first.",
                                              .detail = lost.log,
                                              .code = "problem-crashed"});
    return failure(request, "worker-failed", reason_of(lost), lost.log);
  }
}

std::map<std::string, double> eager_errors(const Verdict& verdict) {
  std::map<std::string, double> errors;
  for (const OutputVerdict& row : verdict.errors)
    if (std::isfinite(row.eager.norm)) {
      double& known = errors[row.output];
      known = std::max(known, row.eager.norm);
    }
  return errors;
}

}  // namespace kw
