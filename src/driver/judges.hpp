// Judging candidates that nobody vouches for, one after the other: each in a fresh process of its own, in the sandbox, with a folder of its
// own, so that none can leave anything behind for the next. The next process is started, and makes what its candidate will be held against,
// while the present one is busy or the model writes.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "driver/environment.hpp"
#include "driver/sandbox.hpp"
#include "driver/scratch.hpp"
#include "driver/session.hpp"

namespace kw {

class Judges {
 public:
  // `request` without a candidate. `problem_runs`: the problem is known to run, so that a dead process is the candidate's doing.
  Judges(const Environment& environment, Progress& progress, const Sandbox& sandbox, VerifyRequest request, double timeout_seconds);

  void get_ready();                                    // starts the next process; does not wait
  // The verdict, in the report (its `policy` must be set); returns the worker's figures. Throws what driver/judgement.hpp says.
  nlohmann::ordered_json judge(const std::string& source, nlohmann::ordered_json& report);
  // Times a candidate that passed, in the same place as the problem's verification; throws kw::Error or WorkerFailure.
  nlohmann::ordered_json measure(const std::string& source, MeasureRequest request);
  void stop() { next_.reset(); }

 private:
  struct Cell {
    Scratch scratch;
    Confinement confinement = {};
    std::unique_ptr<Session> session = {};   // ends before what it is confined by
  };
  std::unique_ptr<Cell> cell();

  const Environment& environment_;
  Progress& progress_;
  const Sandbox& sandbox_;
  VerifyRequest request_;
  double timeout_;
  std::unique_ptr<Cell> next_;
};

}  // namespace kw
