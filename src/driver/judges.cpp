#include "driver/judges.hpp"

#include <utility>

#include "driver/judgement.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

Judges::Judges(const Environment& environment, Progress& progress, const Sandbox& sandbox, VerifyRequest request, double timeout_seconds)
    : environment_(environment), progress_(progress), sandbox_(sandbox), request_(std::move(request)), timeout_(timeout_seconds) {}

std::unique_ptr<Judges::Cell> Judges::cell() {
  auto cell = std::make_unique<Cell>();
  cell->confinement = sandbox_.around(cell->scratch.folder());
  cell->session = std::make_unique<Session>(environment_, progress_, timeout_, Session::Workers::kOne, cell->confinement);
  cell->session->be_quiet(true);
  return cell;
}

void Judges::get_ready() {
  if (next_) return;
  next_ = cell();
  next_->session->prepare_at_once(request_);
}

Json Judges::judge(const std::string& source, Json& report) {
  get_ready();
  const std::unique_ptr<Cell> now = std::move(next_);
  VerifyRequest request = request_;
  request.candidate = now->scratch.write("candidate.py", source);
  return kw::judge(*now->session, request, report);
}

Json Judges::measure(const std::string& source, MeasureRequest request) {
  const std::unique_ptr<Cell> now = cell();
  request.problem = request_.problem;
  request.size = request_.size;
  request.candidate = now->scratch.write("candidate.py", source);
  request.device = request_.device;
  return now->session->measure(request);
}

}  // namespace kw
