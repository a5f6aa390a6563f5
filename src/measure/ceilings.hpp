// A device's measured figures: the worker's methods "ceilings" and "calibrate" (docs/worker-protocol.md).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kw {

struct Ceilings {
  std::string name;
  std::optional<double> copy_bytes_per_second, read_bytes_per_second;
  // Products and sums a second: "fp32", "tf32", "bf16", "fp16", "fp64". None where the device has none.
  std::vector<std::pair<std::string, std::optional<double>>> flops;
  std::optional<double> launch_seconds;
  std::optional<int64_t> threads;  // PyTorch's, on a CPU

  double flops_in(std::string_view precision) const;  // 0 where they are not known
};

// What the cost model wants beyond the ceilings.
struct Calibration {
  std::optional<double> strided_bytes_per_second, gather_bytes_per_second, cache_bytes_per_second,
      shared_bytes_per_second, launch_seconds, synchronise_seconds, sustained_share;
};

nlohmann::ordered_json to_json(const Ceilings& ceilings);
nlohmann::ordered_json to_json(const Calibration& calibration);

// Fields that are missing or of another type are as if they were not there.
Ceilings ceilings_from_json(const nlohmann::ordered_json& json);
Calibration calibration_from_json(const nlohmann::ordered_json& json);

// None where it is no JSON object.
std::optional<Ceilings> ceilings_from_text(std::string_view text);
std::optional<Calibration> calibration_from_text(std::string_view text);

}  // namespace kw
