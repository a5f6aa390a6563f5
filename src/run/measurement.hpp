// What timing a candidate came to: the worker's reply (docs/worker-protocol.md), the figures made of it, and the part
// of a report (docs/json.md) that says them.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "judge/figures.hpp"
#include "measure/statistics.hpp"

namespace kw {

// Who is timed, in the order of reports.
enum class Contender { kOurs, kEager, kCompile };
constexpr std::array kContenders = {Contender::kOurs, Contender::kEager, Contender::kCompile};
const char* name_of(Contender contender);  // "ours", "eager", "compile"

template <typename T>
using PerContender = std::array<T, kContenders.size()>;  // indexed by Contender

struct TimingReply {
  PerContender<std::vector<double>> samples_ms;  // empty: not timed
  std::vector<std::string> noise;                // why the machine was too noisy
  double untold_ms = 0;                          // of each call, that the candidate's clock kept to itself
  std::optional<std::string> runs_original;      // why the original module ran instead of kernels of ours
  std::string timer;
  std::optional<std::string> recheck_fault;  // what was no longer right after timing
  std::optional<Figures> timed;              // of timed calls
  // Repeated in the report as they came.
  nlohmann::ordered_json machine, share_in_our_kernels, profile, peak_memory_bytes, baseline_errors, new_weights_ms;
};

TimingReply timing_reply_from_json(const nlohmann::ordered_json& reply);

struct Measurement {
  PerContender<std::optional<Estimate>> times_ms;
  PerContender<std::optional<Speedup>> speedups;  // of ours over each of the others
  std::vector<std::string> noise;                 // the reply's reasons, and intervals that are too wide
  size_t samples = 0;                             // of ours, or else of eager

  const std::optional<Estimate>& time_ms(Contender contender) const { return times_ms[static_cast<size_t>(contender)]; }
  const std::optional<Speedup>& speedup_over(Contender contender) const {
    return speedups[static_cast<size_t>(contender)];
  }
};

Measurement measurement_of(const TimingReply& reply);

}  // namespace kw
