// What timing a candidate came to: the worker's reply (docs/worker-protocol.md), the figures made of it, and what a
// report (docs/json.md) says of them.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
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

// What the machine did while samples were taken.
struct MachineUse {
  std::optional<double> seconds, others_cores, stolen_cores, throttled_seconds;
  std::optional<int64_t> cores;
};

// A part of the time of one call.
struct ProfilePart {
  std::string name;
  double share = 0.0;
  std::optional<bool> is_ours;  // none: nobody has named the kernels

  bool is_library() const { return is_ours == false; }
};

template <typename T>
using ByName = std::vector<std::pair<std::string, T>>;

// What the worker says beside its samples, and the report repeats.
struct TimingFacts {
  MachineUse machine;
  std::string timer;
  std::optional<double> share_in_our_kernels;  // of the candidate's device time
  std::vector<ProfilePart> profile;
  ByName<int64_t> peak_memory_bytes;
  ByName<std::string> baseline_errors;  // of those that failed, why
  ByName<double> new_weights_ms;
};

struct TimingReply : TimingFacts {
  PerContender<std::vector<double>> samples_ms;  // empty: not timed
  std::vector<std::string> noise;                // why the machine was too noisy
  double untold_ms = 0;                          // of each call, that the candidate's clock kept to itself
  std::optional<std::string> runs_original;      // why the original module ran instead of kernels of ours
  std::optional<std::string> recheck_fault;      // what was no longer right after timing
  std::optional<Figures> timed;                  // of timed calls
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

// A time held to the roofline of the device, and what that rests on.
struct RooflineShare : Roofline {
  double bytes = 0.0, flops = 0.0;
  std::string device;
};

struct Timing : TimingFacts {
  bool is_taken = false;  // otherwise a report says nothing of times
  Measurement measured;
  int64_t outputs_judged = 0;        // of timed calls
  bool is_held_to_roofline = false;  // otherwise a report says nothing of it
  std::optional<RooflineShare> roofline;

  bool answers_for(std::string_view baseline) const;  // was it timed, or did it fail?
};

// Of a report; what is missing or of another type is as if it were not there.
Timing timing_from_json(const nlohmann::ordered_json& report);
Measurement measurement_from_json(const nlohmann::ordered_json& report);
std::optional<Speedup> speedup_from_json(const nlohmann::ordered_json& json);

// The fields of a report from time_ms to roofline; none where nothing was timed.
void write_timing(nlohmann::ordered_json& report, const Timing& timing);
TimingFacts timing_facts_from_json(const nlohmann::ordered_json& json, const char* new_weights_name);

}  // namespace kw
