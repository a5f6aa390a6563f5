#include "propose/device_facts.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "support/json_fields.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kCeilings = "ceilings ";
constexpr const char* kCalibration = "calibration ";

}  // namespace

std::optional<Ceilings> known_ceilings(Archive& archive, const std::string& environment, const std::string& device) {
  const auto fact = archive.find_fact(environment, kCeilings + device);
  return fact ? ceilings_from_text(*fact) : std::nullopt;
}

std::optional<Calibration> known_calibration(Archive& archive, const std::string& environment,
                                             const std::string& device) {
  const auto fact = archive.find_fact(environment, kCalibration + device);
  return fact ? calibration_from_text(*fact) : std::nullopt;
}

Ceilings measure_ceilings(Session& session, Archive& archive, const std::string& environment,
                          const std::string& device) {
  const Json found = session.ceilings(device);
  archive.add_fact(environment, kCeilings + device, found.dump());
  return ceilings_from_json(found);
}

Calibration measure_calibration(Session& session, Archive& archive, const std::string& environment,
                                const std::string& device) {
  const Json found = session.calibrate(device);
  archive.add_fact(environment, kCalibration + device, found.dump());
  return calibration_from_json(found);
}

Ceilings device_ceilings(Session& session, Archive& archive, const std::string& environment,
                         const std::string& device) {
  const auto known = known_ceilings(archive, environment, device);
  return known ? *known : measure_ceilings(session, archive, environment, device);
}

DeviceDescription known_device(Archive& archive, const Environment& environment, const std::string& environment_hash,
                               const Target& target, const Json& card) {
  DeviceDescription description = target.default_device();
  target.look_at(description, environment, card);
  const std::string device(target.tensors());
  const auto take = [](double& field, const std::optional<double>& figure) { field = figure.value_or(field); };
  if (const auto ceilings = known_ceilings(archive, environment_hash, device)) {
    take(description.copy_bytes_per_second, ceilings->copy_bytes_per_second);
    take(description.read_bytes_per_second, ceilings->read_bytes_per_second);
    take(description.launch_seconds, ceilings->launch_seconds);
    if (const double flops = ceilings->flops_in("fp32"); flops > 0) description.fp32_flops = flops;
    if (const double flops = ceilings->flops_in("fp16"); flops > 0 && description.half_flops > 0)
      description.half_flops = flops;
  }
  if (const auto calibration = known_calibration(archive, environment_hash, device)) {
    take(description.strided_bytes_per_second, calibration->strided_bytes_per_second);
    take(description.gather_bytes_per_second, calibration->gather_bytes_per_second);
    take(description.cache_bytes_per_second, calibration->cache_bytes_per_second);
    take(description.shared_bytes_per_second, calibration->shared_bytes_per_second);
    take(description.launch_seconds, calibration->launch_seconds);
    take(description.synchronise_seconds, calibration->synchronise_seconds);
    if (const double share = calibration->sustained_share.value_or(0); share > 0)
      description.sustained_share = std::min(share, 1.0);
  }
  return description;
}

double cache_bytes(Session& session, const Target& target) {
  if (target.is_host()) return cpu_cache_bytes();
  const Json hello = session.hello();
  const Json& cards = rows_of(hello, "cuda");
  return cards.empty() ? 0.0 : figure_of(cards[0], "l2_bytes").value_or(0);
}

}  // namespace kw
