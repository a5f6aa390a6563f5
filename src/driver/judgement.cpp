#include "driver/judgement.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "driver/report.hpp"
#include "support/error.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

Json judge(Session& session, const VerifyRequest& request, Json& report) {
  Json figures = Json::object();
  try {
    figures = session.verify(request);
    add_verification(report, figures, request.policy);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCandidateFailed) throw;
    const ErrorText& text = error.text();
    add_failure(report, text.message, text.code, text.detail);
    report["where"] = text.where;
    report["source"] = text.source;
    report["hint"] = text.hint;
  } catch (const WorkerFailure& failure) {
    if (const std::string what = session.problem_failure(request.problem, request.size, request.device); !what.empty())
      throw Error(ErrorKind::kUser, ErrorText{.message = "The model itself cannot be run: " + what, .where = request.problem, .source = "",
                                              .hint = "Run Model with get_inputs() in plain PyTorch first.", .detail = failure.log, .code = "problem-crashed"});
    add_failure(report, "The candidate " + failure.what + ".", "worker-failed", failure.log);
  }
  return figures;
}

std::map<std::string, double> eager_errors(const Json& report) {
  std::map<std::string, double> result;
  for (const Json& row : report["errors"])
    if (row["eager"].is_object() && row["eager"]["norm"].is_number()) {
      double& known = result[row["output"].get<std::string>()];
      known = std::max(known, row["eager"]["norm"].get<double>());
    }
  return result;
}

}  // namespace kw
