// What timing a candidate came to: the worker's reply (docs/worker-protocol.md), the figures made of it, and what a
// report (docs/json.md) says of them.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "judge/figures.hpp"
#include "measure/roofline.hpp"
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

// A part of the time of one call.
struct ProfilePart {
  std::string name;
  double share = 0.0;
  bool is_library = false;  // false too where nobody has named the kernels
};

struct Timing {
  Measurement measured;
  std::optional<Roofline> roofline;
  std::vector<ProfilePart> profile;
  std::vector<std::pair<std::string, std::string>> baseline_errors;  // of those that failed, why

  bool answers_for(std::string_view baseline) const;  // was it timed, or did it fail?
};

// Of a report; what is missing or of another type is as if it were not there.
Timing timing_from_json(const nlohmann::ordered_json& report);
Measurement measurement_from_json(const nlohmann::ordered_json& report);
std::optional<Speedup> speedup_from_json(const nlohmann::ordered_json& json);

void write_times(nlohmann::ordered_json& report, const Measurement& made);  // time_ms, time_interval_ms
nlohmann::ordered_json speedups_json(const Measurement& made);

}  // namespace kw
