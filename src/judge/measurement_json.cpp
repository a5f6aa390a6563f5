#include <nlohmann/json.hpp>

#include "judge/measurement.hpp"
#include "support/json_fields.hpp"
#include "support/json_write.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

// Without an interval a figure stands for itself.
std::optional<Estimate> estimate_from_json(const Json& json) {
  const auto value = figure_of(json, "value");
  if (!value) return std::nullopt;
  return Estimate{*value, figure_of(json, "low").value_or(*value), figure_of(json, "high").value_or(*value)};
}

std::optional<Estimate> time_from_json(const Json& report, const char* name) {
  const auto value = figure_of(member(report, "time_ms"), name);
  if (!value) return std::nullopt;
  const Json& interval = member(member(report, "time_interval_ms"), name);
  const bool is_known = interval.is_array() && interval.size() == 2 && interval[0].is_number() &&
                        interval[1].is_number();
  return is_known ? Estimate{*value, interval[0].get<double>(), interval[1].get<double>()}
                  : Estimate{*value, *value, *value};
}

std::optional<RooflineShare> roofline_from_json(const Json& json) {
  const auto share = figure_of(json, "fraction");
  if (!share) return std::nullopt;
  RooflineShare read;
  read.share = *share;
  read.floor_ms = figure_of(json, "floor_ms").value_or(0);
  read.limit = text_of(json, "bound");
  read.bytes = figure_of(json, "bytes").value_or(0);
  read.flops = figure_of(json, "flops").value_or(0);
  read.device = text_of(json, "device");
  return read;
}

Json roofline_json(const std::optional<RooflineShare>& line) {
  if (!line) return nullptr;
  return {{"fraction", line->share}, {"floor_ms", line->floor_ms}, {"bound", line->limit},
          {"bytes", line->bytes},    {"flops", line->flops},       {"device", line->device}};
}

Json noise_json(const MachineUse& machine, const std::vector<std::string>& reasons) {
  Json noise = {{"reasons", reasons}};
  put(noise, "cores", machine.cores);
  put(noise, "others_cores", machine.others_cores);
  put(noise, "stolen_cores", machine.stolen_cores);
  put(noise, "throttled_seconds", machine.throttled_seconds);
  put(noise, "seconds", machine.seconds);
  noise["noisy"] = !reasons.empty();
  return noise;
}

Json profile_json(const std::vector<ProfilePart>& profile) {
  Json parts = Json::array();
  for (const ProfilePart& part : profile)
    parts.push_back({{"name", part.name}, {"share", part.share}, {"ours", or_null(part.is_ours)}});
  return parts;
}

// time_ms and time_interval_ms
void write_times(Json& report, const Measurement& made) {
  Json times = Json::object(), intervals = Json::object();
  for (const Contender one : kContenders) {
    times[name_of(one)] = nullptr;
    if (const auto& time = made.time_ms(one)) {
      times[name_of(one)] = time->value;
      intervals[name_of(one)] = {time->low, time->high};
    }
  }
  report["time_ms"] = std::move(times);
  report["time_interval_ms"] = std::move(intervals);
}

Json speedups_json(const Measurement& made) {
  Json speedups = Json::object();
  for (const Contender one : kContenders)
    if (const auto& speedup = made.speedup_over(one)) speedups[name_of(one)] = to_json(*speedup);
  return speedups;
}

}  // namespace

std::optional<Speedup> speedup_from_json(const Json& json) {
  const auto ratio = estimate_from_json(json);
  if (!ratio) return std::nullopt;
  Speedup speedup{.ratio = *ratio, .detectable = figure_of(json, "detectable").value_or(0)};
  for (const Difference one : {Difference::kFaster, Difference::kSlower})
    if (text_of(json, "difference") == name_of(one)) speedup.difference = one;
  return speedup;
}

Measurement measurement_from_json(const Json& report) {
  Measurement made;
  for (const Contender one : kContenders) {
    made.times_ms[static_cast<size_t>(one)] = time_from_json(report, name_of(one));
    made.speedups[static_cast<size_t>(one)] = speedup_from_json(member(member(report, "speedup"), name_of(one)));
  }
  made.noise = texts_of(member(report, "noise"), "reasons");
  made.samples = static_cast<size_t>(count_of(report, "samples").value_or(0));
  return made;
}

TimingFacts timing_facts_from_json(const Json& json, const char* new_weights_name) {
  const Json& noise = member(json, "noise");
  TimingFacts facts{.machine = {.seconds = figure_of(noise, "seconds"),
                                .others_cores = figure_of(noise, "others_cores"),
                                .stolen_cores = figure_of(noise, "stolen_cores"),
                                .throttled_seconds = figure_of(noise, "throttled_seconds"),
                                .cores = count_of(noise, "cores")},
                    .timer = text_of(json, "timer"),
                    .share_in_our_kernels = figure_of(json, "share_in_our_kernels"),
                    .profile = {},
                    .peak_memory_bytes = counts_of(json, "peak_memory_bytes"),
                    .baseline_errors = texts_by_name(json, "baseline_errors"),
                    .new_weights_ms = figures_by_name(json, new_weights_name)};
  for (const Json& part : rows_of(json, "profile")) {
    const Json& ours = member(part, "ours");
    facts.profile.push_back({text_of(part, "name"), figure_of(part, "share").value_or(0),
                             ours.is_boolean() ? std::optional(ours.get<bool>()) : std::nullopt});
  }
  return facts;
}

Timing timing_from_json(const Json& report) {
  Timing timing;
  static_cast<TimingFacts&>(timing) = timing_facts_from_json(report, "time_with_new_weights_ms");
  timing.is_taken = member(report, "time_ms").is_object();
  timing.measured = measurement_from_json(report);
  timing.outputs_judged = count_of(report, "timed_outputs_judged").value_or(0);
  timing.is_held_to_roofline = report.is_object() && report.contains("roofline");
  timing.roofline = roofline_from_json(member(report, "roofline"));
  return timing;
}

void write_timing(Json& report, const Timing& timing) {
  if (!timing.is_taken) return;
  write_times(report, timing.measured);
  report["noise"] = noise_json(timing.machine, timing.measured.noise);
  report["speedup"] = speedups_json(timing.measured);
  report["timer"] = timing.timer;
  report["samples"] = timing.measured.samples;
  report["share_in_our_kernels"] = or_null(timing.share_in_our_kernels);
  report["profile"] = profile_json(timing.profile);
  report["peak_memory_bytes"] = by_name(timing.peak_memory_bytes);
  report["baseline_errors"] = by_name(timing.baseline_errors);
  report["time_with_new_weights_ms"] = by_name(timing.new_weights_ms);
  report["timed_outputs_judged"] = timing.outputs_judged;
  if (timing.is_held_to_roofline) report["roofline"] = roofline_json(timing.roofline);
}

}  // namespace kw
