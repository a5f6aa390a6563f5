// One line of results.jsonl (docs/json.md), as far as a suite's summary reads it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kw {

struct MeasuredSpeedup {
  double value = 0, low = 0, high = 0;
};

// What one proposer had right and cost, for one problem.
struct ProposerLine {
  std::string proposer;
  double seconds = 0;
  std::optional<int64_t> judged, passed, answers, evaluated;
  std::optional<double> cost;
  std::optional<int64_t> tokens_read, tokens_written;
};

struct KernelLine {
  std::string name;
  std::optional<int64_t> spills, registers;  // bytes and registers of a thread
};

struct ResultLine {
  std::string problem, name, category, verdict, reason;
  std::map<std::string, MeasuredSpeedup> speedup;  // by baseline
  std::optional<std::map<int, double>> pass_at_k;  // of a language model
  std::optional<std::map<int, double>> best_at_k;
  int judged = 0;
  std::vector<ProposerLine> proposers;
  std::string winner;
  int kernels = 0, kernels_compiled = 0;
  std::vector<KernelLine> compiled;
  bool noisy = false;
  std::vector<std::string> noise;  // the reasons

  bool passed() const { return verdict == "pass"; }
  bool emitted() const { return verdict == "emitted"; }
  const std::string& title() const { return name.empty() ? problem : name; }
};

// Fields that are missing or of another type are as if they were not there.
ResultLine result_line_from_json(const nlohmann::ordered_json& json);

}  // namespace kw
