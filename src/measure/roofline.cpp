#include "measure/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kw {

namespace {

constexpr double kMargin = 0.8;

double fastest(const Ceilings& ceilings) {
  return std::max(ceilings.copy_bytes_per_second.value_or(0), ceilings.read_bytes_per_second.value_or(0));
}

}  // namespace

double Ceilings::flops_in(std::string_view precision) const {
  for (const auto& [name, rate] : flops)
    if (name == precision) return rate.value_or(0);
  return 0;
}

Roofline roofline(const Work& work, const Ceilings& ceilings, double time_ms) {
  // Reading alone can run faster than copying, so a problem that mostly reads is held to the read ceiling.
  const double bytes = work.read_bytes + work.write_bytes;
  const double read_share = bytes > 0 ? work.read_bytes / bytes : 0.0;
  const double bandwidth = read_share > 0.9 ? fastest(ceilings) : ceilings.copy_bytes_per_second.value_or(0);
  const double memory = bandwidth > 0 ? bytes / bandwidth : 0.0;
  const double rate = ceilings.flops_in(work.precision);
  const double compute = rate > 0 ? work.flops / rate : 0.0;
  Roofline result;
  const double floor = std::max({memory, compute, ceilings.launch_seconds.value_or(0)});
  result.limit = floor == memory ? "memory" : floor == compute ? "compute" : "launch";
  result.floor_ms = floor * 1e3;
  result.share = time_ms > 0 ? result.floor_ms / time_ms : 0.0;
  return result;
}

std::optional<std::string> too_fast_to_be_true(const Work& work, const Ceilings& ceilings, double cache_bytes,
                                               double time_ms) {
  const double bandwidth = fastest(ceilings);
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
