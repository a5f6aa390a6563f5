#include "propose/sample_log.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "llm/pass_at_k.hpp"

namespace kw {

namespace {

constexpr int kAsked[] = {1, 5, 10, 20, 50, 100};

// k → `figure(k)`, for the usual k and for all samples.
std::map<int, double> at_each_k(int samples, const std::function<double(int)>& figure) {
  std::map<int, double> out;
  for (const int k : kAsked)
    if (k <= samples) out[k] = figure(k);
  if (samples > 0) out[samples] = figure(samples);
  return out;
}

// As a report counts them: in the order in which they came up.
void count_one(std::vector<std::pair<std::string, int64_t>>& counts, const std::string& name) {
  const auto known = std::ranges::find_if(counts, [&](const auto& one) { return one.first == name; });
  if (known == counts.end()) counts.emplace_back(name, 1);
  else ++known->second;
}

std::map<int, double> pass_at(int samples, int passed) {
  return at_each_k(samples, [&](int k) { return *llm::pass_at_k(samples, passed, k); });
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

void SampleLog::add(int sample, int turn, AnswerRecord record) {
  Sample& one = samples_[sample];
  one.passed = one.passed || record.passed();
  if (turn == 0) one.passed_at_first = record.passed();
  one.turns[turn] = std::move(record);
}

int SampleLog::passed() const {
  return static_cast<int>(
      std::count_if(samples_.begin(), samples_.end(), [](const auto& one) { return one.second.passed; }));
}

int SampleLog::turns(int sample, bool good) const {
  const auto found = samples_.find(sample);
  if (found == samples_.end()) return 0;
  return static_cast<int>(std::count_if(found->second.turns.begin(), found->second.turns.end(),
                                        [&](const auto& one) { return one.second.passed() == good; }));
}

std::map<int, double> SampleLog::best_at_k(const std::map<std::string, double>& speedups) const {
  std::vector<double> values;
  for (const auto& [number, sample] : samples_) {
    double best = 1;
    for (const auto& [turn, record] : sample.turns)
      if (const auto found = speedups.find(record.candidate); found != speedups.end())
        best = std::max(best, found->second);
    values.push_back(best);
  }
  return at_each_k(judged(), [&](int k) { return *llm::best_at_k(values, k); });
}

std::string SampleLog::commonest_fault() const {
  std::map<std::string, int> reasons;
  for (const auto& [number, sample] : samples_) ++reasons[sample.turns.rbegin()->second.outcome.reason];
  const auto most = std::max_element(reasons.begin(), reasons.end(),
                                     [](const auto& one, const auto& other) { return one.second < other.second; });
  return most == reasons.end() ? "" : most->first;
}

Sampling SampleLog::sampling(const llm::ModelOptions& model) const {
  Sampling out;
  int at_first = 0, prompt_tokens = 0, completion_tokens = 0;
  double writing = 0;
  std::vector<double> overheads;
  const auto count = [&](const llm::Usage& usage) {
    prompt_tokens += usage.prompt_tokens;
    completion_tokens += usage.completion_tokens;
    writing += usage.seconds;
  };
  std::ranges::for_each(unjudged_, count);
  for (const auto& [number, sample] : samples_) {
    at_first += sample.passed_at_first;
    Sampling::Sample& shown = out.samples.emplace_back();
    shown.number = number;
    shown.passed = sample.passed;
    for (const auto& [turn, record] : sample.turns) {
      shown.turns.push_back(record);
      count(record.usage);
      out.ran += record.ran;
      for (const std::string& repair : record.repairs) count_one(out.repairs, repair.substr(0, repair.find(':')));
      if (record.seconds) overheads.push_back(record.seconds->overhead.value_or(0));
    }
    count_one(out.codes, sample.passed ? "pass" : sample.turns.rbegin()->second.outcome.code);
  }
  out.judged = judged();
  out.passed = passed();
  out.passed_at_first = at_first;
  out.pass_at_k = pass_at(judged(), passed());
  out.pass_at_k_without_repair = pass_at(judged(), at_first);
  out.tokens = {prompt_tokens, completion_tokens,
                writing > 0 ? std::optional(completion_tokens / writing) : std::nullopt};
  if (model.read_price > 0 || model.written_price > 0)
    out.cost = (prompt_tokens * model.read_price + completion_tokens * model.written_price) / 1e6;
  out.overhead_ms = median(overheads) * 1000;
  out.largest_overhead_ms = overheads.empty() ? 0 : *std::max_element(overheads.begin(), overheads.end()) * 1000;
  return out;
}

}  // namespace kw
