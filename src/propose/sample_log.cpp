#include "propose/sample_log.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "llm/pass_at_k.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

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

Json usage_json(const llm::Completion& completion) {
  return {{"finish", completion.finish},
          {"prompt_tokens", completion.prompt_tokens},
          {"completion_tokens", completion.completion_tokens},
          {"estimated", completion.tokens_estimated},
          {"seconds", completion.seconds},
          {"first_token_seconds", completion.first_token_seconds},
          {"retries", completion.retries},
          {"waited_seconds", completion.waited_seconds}};
}

void SampleLog::add(int sample, int turn, const Json& record, bool passed) {
  Sample& one = samples_[sample];
  one.turns[turn] = record;
  one.passed = one.passed || passed;
  if (turn == 0) one.passed_at_first = passed;
}

int SampleLog::passed() const {
  return static_cast<int>(
      std::count_if(samples_.begin(), samples_.end(), [](const auto& one) { return one.second.passed; }));
}

int SampleLog::turns(int sample, bool good) const {
  const auto found = samples_.find(sample);
  if (found == samples_.end()) return 0;
  return static_cast<int>(std::count_if(found->second.turns.begin(), found->second.turns.end(), [&](const auto& one) {
    return (one.second.value("verdict", "") == "pass") == good;
  }));
}

std::map<int, double> SampleLog::best_at_k(const std::map<std::string, double>& speedups) const {
  std::vector<double> values;
  for (const auto& [number, sample] : samples_) {
    double best = 1;
    for (const auto& [turn, record] : sample.turns)
      if (const auto found = speedups.find(record.value("candidate", "")); found != speedups.end())
        best = std::max(best, found->second);
    values.push_back(best);
  }
  return at_each_k(judged(), [&](int k) { return *llm::best_at_k(values, k); });
}

std::string SampleLog::commonest_fault() const {
  std::map<std::string, int> reasons;
  for (const auto& [number, sample] : samples_) ++reasons[sample.turns.rbegin()->second.value("reason", "")];
  const auto most = std::max_element(reasons.begin(), reasons.end(),
                                     [](const auto& one, const auto& other) { return one.second < other.second; });
  return most == reasons.end() ? "" : most->first;
}

Sampling SampleLog::sampling(const llm::ModelOptions& model) const {
  Sampling out;
  int at_first = 0, prompt_tokens = 0, completion_tokens = 0;
  double writing = 0;
  std::vector<double> overheads;
  const auto count = [&](const Json& usage) {
    prompt_tokens += usage.value("prompt_tokens", 0);
    completion_tokens += usage.value("completion_tokens", 0);
    writing += usage.value("seconds", 0.0);
  };
  for (const Json& usage : unjudged_) count(usage);
  for (const auto& [number, sample] : samples_) {
    at_first += sample.passed_at_first;
    Sampling::Sample& shown = out.samples.emplace_back();
    shown.number = number;
    shown.passed = sample.passed;
    for (const auto& [turn, record] : sample.turns) {
      Json row;
      for (const char* field : {"verdict", "code", "reason", "repairs", "ran", "candidate", "usage", "seconds", "times",
                                "reused", "same_as_before"})
        if (record.contains(field)) row[field] = record[field];
      shown.turns.push_back(std::move(row));
      count(record.value("usage", Json::object()));
      out.ran += record.value("ran", false);
      for (const Json& repair : record.value("repairs", Json::array())) {
        const std::string text = repair;
        count_one(out.repairs, text.substr(0, text.find(':')));
      }
      if (record.contains("seconds")) overheads.push_back(record["seconds"].value("overhead", 0.0));
    }
    count_one(out.codes, sample.passed ? "pass" : sample.turns.rbegin()->second.value("code", ""));
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
