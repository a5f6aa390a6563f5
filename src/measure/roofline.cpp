#include "measure/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kMargin = 0.8;

double number(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_number() ? json[key].get<double>() : 0.0;
}

}  // namespace

Ceilings ceilings_from_json(const Json& json) {
  Ceilings ceilings;
  ceilings.name = json.value("name", std::string());
  ceilings.copy_bytes_per_second = number(json, "copy_bytes_per_second");
  ceilings.read_bytes_per_second = number(json, "read_bytes_per_second");
  ceilings.launch_seconds = number(json, "launch_seconds");
  const Json flops = json.value("flops", Json::object());
  for (const auto& [precision, rate] : flops.items())
    if (rate.is_number()) ceilings.flops[precision] = rate.get<double>();
  return ceilings;
}

Json to_json(const Ceilings& ceilings) {
  Json flops = Json::object();
  for (const auto& [precision, rate] : ceilings.flops) flops[precision] = rate;
  return {{"name", ceilings.name},
          {"copy_bytes_per_second", ceilings.copy_bytes_per_second},
          {"read_bytes_per_second", ceilings.read_bytes_per_second},
          {"flops", flops},
          {"launch_seconds", ceilings.launch_seconds}};
}

Roofline roofline(const Work& work, const Ceilings& ceilings, double time_ms) {
  // Reading alone can run faster than copying, so a problem that mostly reads is held to the read ceiling.
  const double bytes = work.read_bytes + work.write_bytes;
  const double read_share = bytes > 0 ? work.read_bytes / bytes : 0.0;
  const double fastest = std::max(ceilings.copy_bytes_per_second, ceilings.read_bytes_per_second);
  const double bandwidth = read_share > 0.9 ? fastest : ceilings.copy_bytes_per_second;
  const double memory = bandwidth > 0 ? bytes / bandwidth : 0.0;
  const auto rate = ceilings.flops.find(work.precision);
  const double compute = rate != ceilings.flops.end() && rate->second > 0 ? work.flops / rate->second : 0.0;
  Roofline result;
  const double floor = std::max({memory, compute, ceilings.launch_seconds});
  result.limit = floor == memory ? "memory" : floor == compute ? "compute" : "launch";
  result.floor_ms = floor * 1e3;
  result.share = time_ms > 0 ? result.floor_ms / time_ms : 0.0;
  return result;
}

std::optional<std::string> too_fast_to_be_true(const Work& work, const Ceilings& ceilings, double cache_bytes,
                                               double time_ms) {
  const double bandwidth = std::max(ceilings.copy_bytes_per_second, ceilings.read_bytes_per_second);
  const double bytes = std::max(0.0, work.read_bytes + work.write_bytes - cache_bytes);
  if (bandwidth <= 0 || bytes <= 0) return std::nullopt;
  const double floor_ms = kMargin * bytes / bandwidth * 1e3;
  if (time_ms >= floor_ms) return std::nullopt;
  return fmt::format(
      "{:.4g} ms is too fast to be true: moving the {:.3g} GB beyond the cache takes at least {:.4g} ms at the "
      "measured {:.3g} GB/s.",
      time_ms, bytes / 1e9, floor_ms, bandwidth / 1e9);
}

}  // namespace kw
