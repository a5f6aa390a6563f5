// What becomes of one answer of a model: the code in it, its verdict and, when it passed, its times; everything in the
// archive.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "archive/archive.hpp"
#include "ir/graph.hpp"
#include "judge/judges.hpp"
#include "judge/problem_file.hpp"
#include "llm/backend.hpp"
#include "llm/host.hpp"
#include "propose/answer_record.hpp"
#include "propose/feedback.hpp"
#include "run/report.hpp"
#include "target/target.hpp"

namespace kw {

// What all answers to one problem are judged by; all of it outlives the judge.
struct JudgeContext {
  Archive& archive;
  llm::Host& facts;  // parses Python
  Judges& judges;
  const Environment& environment;
  Progress& progress;
  const ProblemFile& problem;
  std::string problem_hash, environment_hash;
  const Target& target;
  std::string policy;
  double timeout_seconds = 120;
  int64_t input_bytes = 0;
  const Graph* graph = nullptr;  // for the roofline; nullptr: none
};

struct JudgedAnswer {
  AnswerRecord record;          // what is known of it before its times and what the model is told
  Feedback feedback;            // empty where there is nothing to say to the model
  std::string source, verdict;  // the file, and the verdict's hash; empty where there was no code
  double seconds = 0;           // of the verification
};

class AnswerJudge {
 public:
  explicit AnswerJudge(JudgeContext context) : context_(std::move(context)) {}

  // A source that was judged before is not judged again.
  JudgedAnswer judge(const llm::Completion& completion, const std::string& model);

  // Times one that passed: a report of the times alone, with verdict "fail" where it did not hold. Throws Interrupted.
  Report time(const std::string& source, const AnswerRecord& record, const std::vector<std::string>& baselines,
              double seconds);

 private:
  struct Known {
    AnswerVerdict outcome;
    std::string verdict;
  };
  struct DeviceLimits {
    Ceilings ceilings;
    double cache_bytes = 0;
  };
  nlohmann::ordered_json facts_of(const std::string& source);  // the worker's "source_facts"
  const DeviceLimits& limits();                                // asked for once: it takes a process of its own

  JudgeContext context_;
  std::optional<DeviceLimits> limits_;
  std::map<std::string, Known> known_;  // by candidate
};

}  // namespace kw
