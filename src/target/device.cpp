#include "target/device.hpp"

#include <nlohmann/json.hpp>

#include "support/error.hpp"

namespace kw {

using nlohmann::ordered_json;

namespace {

template <typename Device, typename Visit>
void for_each_field(Device& device, Visit&& visit) {
  visit("name", device.name);
  visit("target", device.target);
  visit("units", device.units);
  visit("cache_bytes", device.cache_bytes);
  visit("unit_cache_bytes", device.unit_cache_bytes);
  visit("vector_bytes", device.vector_bytes);
  visit("copy_bytes_per_second", device.copy_bytes_per_second);
  visit("fp32_flops", device.fp32_flops);
  visit("half_flops", device.half_flops);
  visit("launch_seconds", device.launch_seconds);
  visit("read_bytes_per_second", device.read_bytes_per_second);
  visit("strided_bytes_per_second", device.strided_bytes_per_second);
  visit("gather_bytes_per_second", device.gather_bytes_per_second);
  visit("cache_bytes_per_second", device.cache_bytes_per_second);
  visit("shared_bytes_per_second", device.shared_bytes_per_second);
  visit("synchronise_seconds", device.synchronise_seconds);
}

}  // namespace

DeviceDescription default_device(std::string_view target) {
  DeviceDescription device;
  device.target = target;
  if (target == "triton") {
    device.name = "NVIDIA H200";
    device.units = 132;
    device.cache_bytes = 50 << 20;
    device.unit_cache_bytes = 256 << 10;
    device.vector_bytes = 16;
    device.copy_bytes_per_second = 4.3e12;
    device.fp32_flops = 51e12;
    device.half_flops = 650e12;
    device.launch_seconds = 2.5e-6;
    return device;
  }
  if (target != "cpu")
    throw Error(ErrorKind::kUser, "unknown target '" + std::string(target) + "'", "Use triton or cpu.");
  device.name = "generic CPU";
  device.units = 2;
  device.cache_bytes = 32 << 20;
  device.unit_cache_bytes = 1 << 20;
  device.vector_bytes = 32;
  device.copy_bytes_per_second = 1.5e10;
  device.fp32_flops = 1e11;
  device.launch_seconds = 3e-6;
  return device;
}

DeviceDescription device_from_json(std::string_view text) {
  const ordered_json json = ordered_json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("target") || !json["target"].is_string())
    throw Error(ErrorKind::kUser, "a device description is a JSON object with a \"target\"");
  DeviceDescription device = default_device(json["target"].get<std::string>());
  try {
    for_each_field(device, [&](const char* key, auto& field) {
      if (json.contains(key)) json[key].get_to(field);
    });
  } catch (const ordered_json::exception& error) {
    throw Error(ErrorKind::kUser, std::string("a field of the device description has the wrong type: ") + error.what());
  }
  return device;
}

std::string device_to_json(const DeviceDescription& device) {
  ordered_json json;
  for_each_field(device, [&](const char* key, const auto& field) { json[key] = field; });
  return json.dump();
}

}  // namespace kw
