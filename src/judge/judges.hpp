// Judging candidates that nobody vouches for, one after the other, each in a process of its own, in the sandbox. What
// the next one will be held against is made while the model writes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "judge/environment.hpp"
#include "judge/judgement.hpp"
#include "support/scratch.hpp"

namespace kw {

class Judges {
 public:
  // `request` without a candidate.
  Judges(const Environment& environment, Progress& progress, VerifyRequest request, double timeout_seconds);

  void get_ready();  // begins to make what the next candidate will be held against; does not wait
  Judgement judge(const std::string& source);  // throws what judge/judgement.hpp says
  // Times a candidate that passed; throws kw::Error or WorkerFailure.
  nlohmann::ordered_json measure(const std::string& source, MeasureRequest request);
  std::vector<std::string> missing_protections() { return session_.missing_protections(request_.device); }
  void stop() {
    session_.stop();
    is_ready_ = false;
  }

 private:
  Scratch scratch_;
  VerifyRequest request_;
  Session session_;
  bool is_ready_ = false;
};

}  // namespace kw
