// What a suite's results say together. Metrics as KernelBench defines them (Ouyang et al. 2025): fast_p is the share of
// all problems that are correct and more than p times as fast as the baseline, so that fast_0 is the share that is
// correct.
#pragma once

#include <array>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/result_line.hpp"

namespace kw {

constexpr std::array kFastThresholds = {0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 5.0};
constexpr std::array kBaselines = {Contender::kEager, Contender::kCompile};

// Of the problems of a group, against one baseline. The geometric mean is over what is correct and measured.
struct BaselineFigures {
  int measured = 0;
  std::array<double, kFastThresholds.size()> fast{};  // fast_p of each threshold
  std::optional<double> geometric_mean;
  int wins = 0, losses = 0, below_097 = 0;

  int no_difference() const { return measured - wins - losses; }
};

// Of a language model. A problem that has no figure (the file does not load) counts as 0, in best@k as 1; only the k
// that all the others have.
struct SampleFigures {
  int samples = 0;
  std::map<int, double> pass_at_k, best_at_k;  // best@k: the geometric mean of theirs
};

// Where a model came after the compiler: whose candidates were kept, and what each proposer had right and cost.
struct ProposerFigures {
  int64_t problems = 0, kept = 0;
  double seconds = 0;
  std::optional<int64_t> judged, passed, answers, evaluated;
  std::optional<double> cost;
  std::optional<int64_t> tokens_read, tokens_written;
};

struct GroupFigures {
  size_t problems = 0;
  int correct = 0, emitted = 0, kernels = 0, kernels_compiled = 0;
  std::array<BaselineFigures, kBaselines.size()> against;  // in the order of kBaselines
  std::optional<SampleFigures> samples;
  std::vector<std::pair<std::string, ProposerFigures>> proposers;  // by name, in the order of appearance
};

struct Summary {
  struct Slower {
    std::string problem;
    double speedup = 0, high = 0;
  };
  struct Spilling {
    std::string problem, kernel;
    int64_t bytes = 0;
    std::optional<int64_t> registers;
  };
  struct Noisy {
    std::string problem;
    std::vector<std::string> reasons;
  };
  struct Failure {
    std::string problem, category, verdict, reason;
  };

  GroupFigures all;
  std::map<std::string, GroupFigures> categories;
  std::vector<Slower> slower;      // verified, and slower than eager beyond the noise of the timing
  std::vector<Spilling> spilling;  // kernels that spill registers, and how many bytes of each thread's
  std::vector<Noisy> noisy;
  std::vector<Failure> failures;
};

Summary summarise(const std::vector<ResultLine>& lines);

nlohmann::ordered_json to_json(const Summary& summary);  // docs/json.md
std::string summary_text(const Summary& summary);        // the same for people

}  // namespace kw
