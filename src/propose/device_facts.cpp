#include "propose/device_facts.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "judge/target.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

// The fact of that name, or what `measure` finds, kept under it.
Json fact(Archive& archive, const std::string& environment, const std::string& name, bool fresh,
          const std::function<Json()>& measure) {
  if (!fresh)
    if (const auto known = archive.find_fact(environment, name)) {
      Json json = Json::parse(*known, nullptr, false);
      if (json.is_object()) {
        json["from_archive"] = true;
        return json;
      }
    }
  Json found = measure();
  archive.add_fact(environment, name, found.dump());
  found["from_archive"] = false;
  return found;
}

}  // namespace

Json device_ceilings(Session& session, Archive& archive, const std::string& environment, const std::string& device,
                     bool fresh) {
  return fact(archive, environment, "ceilings " + device, fresh, [&] { return session.ceilings(device); });
}

Json device_calibration(Session& session, Archive& archive, const std::string& environment, const std::string& device,
                        bool fresh) {
  return fact(archive, environment, "calibration " + device, fresh, [&] { return session.calibrate(device); });
}

DeviceDescription known_device(Archive& archive, const Environment& environment, const std::string& environment_hash,
                               const std::string& target) {
  Json description = Json::parse(device_to_json(default_device(target)));
  const std::string device = device_of(target);
  for (const char* name : {"ceilings ", "calibration "}) {
    const auto known = archive.find_fact(environment_hash, name + device);
    const Json json = known ? Json::parse(*known, nullptr, false) : Json();
    if (!json.is_object()) continue;
    for (const auto& [field, value] : json.items())
      if (value.is_number() && description.contains(field)) description[field] = value;
    if (json.contains("flops") && json["flops"].is_object() && json["flops"].contains("fp32") &&
        json["flops"]["fp32"].is_number())
      description["fp32_flops"] = json["flops"]["fp32"];
  }
  if (target == "cpu") {
    description["units"] = environment.cpu_threads;
    if (const double cache = cpu_cache_bytes(); cache > 0) description["cache_bytes"] = static_cast<int64_t>(cache);
  }
  return device_from_json(description.dump());
}

double cpu_cache_bytes() {
  double largest = 0;
  for (const char* index : {"2", "3"}) {
    std::ifstream file(std::string("/sys/devices/system/cpu/cpu0/cache/index") + index + "/size");
    double kilobytes = 0;
    if (file >> kilobytes) largest = std::max(largest, kilobytes * 1024);
  }
  return largest;
}

double cache_bytes(Session& session, const std::string& device) {
  if (device != "cuda") return cpu_cache_bytes();
  const Json hello = session.hello();
  return hello["cuda"].is_array() && !hello["cuda"].empty() ? hello["cuda"][0].value("l2_bytes", 0.0) : 0.0;
}

}  // namespace kw
