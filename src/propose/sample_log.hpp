// What became of the samples, for the report and for pass@k.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "llm/backend.hpp"

namespace kw {

nlohmann::ordered_json usage_json(const llm::Completion& completion);

class SampleLog {
 public:
  // One turn of one sample, judged; turns of a sample come in order. `record` as it is stored.
  void add(int sample, int turn, const nlohmann::ordered_json& record, bool passed);

  // An answer that nobody judged: its tokens count.
  void add_unjudged(const nlohmann::ordered_json& usage) { unjudged_.push_back(usage); }

  int judged() const { return static_cast<int>(samples_.size()); }
  int passed() const;
  int turns(int sample, bool passed) const;  // of one sample, so far: those that passed, or those that did not
  std::string commonest_fault() const;

  // best_at_k, from each candidate's speed-up over eager: an answer that did not pass, or is slower, leaves eager in
  // its place (1).
  void describe_best(nlohmann::ordered_json& report, const std::map<std::string, double>& speedups) const;

  // samples, passed, pass_at_k (with and without repairs), tokens and what they cost, repairs, codes, overhead.
  void describe(nlohmann::ordered_json& report, const llm::ModelOptions& model) const;

 private:
  struct Sample {
    std::map<int, nlohmann::ordered_json> turns;
    bool passed = false, passed_at_first = false;
  };
  std::map<int, Sample> samples_;
  std::vector<nlohmann::ordered_json> unjudged_;  // their usage
};

}  // namespace kw
