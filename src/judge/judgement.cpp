#include "judge/judgement.hpp"

#include <algorithm>
#include <cmath>

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
  if (!judgement.passed() || !judgement.runs_original) return;
  judgement.verdict.pass = false;
  judgement.verdict.code = "runs-original";
  judgement.verdict.reason = "On the problem's own inputs the original module ran instead of its kernels: " +
                             *judgement.runs_original + ".";
}

// Where the process that judges ended twice; where it hung, the candidate used up the time.
std::string reason_of(const WorkerFailure& failure) {
  if (failure.kind == WorkerFailure::Kind::kHung) return "The candidate " + failure.what + ".";
  return "The process that judges " + failure.what +
         ", twice, while it verified this candidate, and not while it ran the model alone.";
}

}  // namespace

Judgement judgement_of(Json figures, Policy policy) {
  Judgement judgement;
  judgement.verdict = judge(figures, policy);
  if (figures.contains("seed") && figures["seed"].is_number()) judgement.seed = figures["seed"].get<uint64_t>();
  judgement.draws = figures.at("draws").size();
  if (figures.contains("missing_protections") && figures["missing_protections"].is_array())
    judgement.missing_protections = figures["missing_protections"].get<std::vector<std::string>>();
  judgement.runs_original = runs_original(figures);
  judgement.prepared_seconds = figures.value("prepared_seconds", 0.0);
  judgement.figures = std::move(figures);
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

std::optional<std::string> runs_original(const Json& reply) {
  if (!reply.contains("runs_original") || !reply["runs_original"].is_string()) return std::nullopt;
  return reply["runs_original"].get<std::string>();
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
