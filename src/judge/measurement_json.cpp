#include <nlohmann/json.hpp>

#include "judge/measurement.hpp"
#include "support/json_fields.hpp"

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

std::optional<Roofline> roofline_from_json(const Json& json) {
  const auto share = figure_of(json, "fraction");
  if (!share) return std::nullopt;
  return Roofline{
      .floor_ms = figure_of(json, "floor_ms").value_or(0), .share = *share, .limit = text_of(json, "bound")};
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

Timing timing_from_json(const Json& report) {
  Timing timing{.measured = measurement_from_json(report),
                .roofline = roofline_from_json(member(report, "roofline")),
                .profile = {},
                .baseline_errors = {}};
  for (const Json& part : rows_of(report, "profile"))
    timing.profile.push_back({text_of(part, "name"), figure_of(part, "share").value_or(0),
                              member(part, "ours").is_boolean() && !flag_of(part, "ours")});
  if (const Json& errors = member(report, "baseline_errors"); errors.is_object())
    for (const auto& [name, what] : errors.items())
      if (what.is_string()) timing.baseline_errors.emplace_back(name, what.get<std::string>());
  return timing;
}

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

}  // namespace kw
