// What became of the samples, for the report and for pass@k.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "propose/answer_record.hpp"

namespace kw {

struct Tokens {
  std::optional<int64_t> prompt, completion;
  std::optional<double> per_second;
};

// What became of a language model's answers.
struct Sampling {
  struct Sample {
    int64_t number = 0;
    bool passed = false;
    std::vector<AnswerRecord> turns;
  };

  int64_t judged = 0, passed = 0, passed_at_first = 0, ran = 0;
  std::optional<std::map<int, double>> pass_at_k, pass_at_k_without_repair, best_at_k;
  std::vector<std::pair<std::string, int64_t>> codes, repairs;
  Tokens tokens;
  std::optional<double> cost;
  double overhead_ms = 0.0, largest_overhead_ms = 0.0;  // the median
  std::vector<Sample> samples;
};

class SampleLog {
 public:
  // One turn of one sample, judged; turns of a sample come in order.
  void add(int sample, int turn, AnswerRecord record);

  // An answer that nobody judged: its tokens count.
  void add_unjudged(const llm::Usage& usage) { unjudged_.push_back(usage); }

  int judged() const { return static_cast<int>(samples_.size()); }
  int passed() const;
  int turns(int sample, bool passed) const;  // of one sample, so far: those that passed, or those that did not
  std::string commonest_fault() const;

  // From each candidate's speed-up over eager: an answer that did not pass, or is slower, leaves eager in its place
  // (1).
  std::map<int, double> best_at_k(const std::map<std::string, double>& speedups) const;

  // All but best_at_k.
  Sampling sampling(const llm::ModelOptions& model) const;

 private:
  struct Sample {
    std::map<int, AnswerRecord> turns;
    bool passed = false, passed_at_first = false;
  };
  std::map<int, Sample> samples_;
  std::vector<llm::Usage> unjudged_;
};

}  // namespace kw
