#include "judge/judges.hpp"

#include <utility>

#include "support/interrupt.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

Judges::Judges(const Environment& environment, Progress& progress, VerifyRequest request, double timeout_seconds)
    : request_(std::move(request)), session_(environment, progress, timeout_seconds) {
  session_.be_quiet(true);
}

void Judges::get_ready() {
  if (!std::exchange(is_ready_, true)) session_.prepare_at_once(request_);
}

Judgement Judges::judge(const std::string& source) {
  get_ready();
  is_ready_ = false;
  VerifyRequest request = request_;
  request.candidate = scratch_.write("candidate.py", source);
  try {
    return kw::judge(session_, request);
  } catch (const Interrupted&) {
    stop();  // it may wait for a candidate that hangs
    throw;
  }
}

Json Judges::measure(const std::string& source, MeasureRequest request) {
  request.problem = request_.problem;
  request.size = request_.size;
  request.candidate = scratch_.write("candidate.py", source);
  request.device = request_.device;
  request.secrets = request_.secrets;
  try {
    return session_.measure(request);
  } catch (const Interrupted&) {
    stop();
    throw;
  }
}

}  // namespace kw
