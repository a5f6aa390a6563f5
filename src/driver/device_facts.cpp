#include "driver/device_facts.hpp"

#include <nlohmann/json.hpp>

#include "driver/report.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

Json device_ceilings(Session& session, Archive& archive, const std::string& environment, const std::string& device, const std::string& lock, bool fresh) {
  const std::string name = "ceilings " + device;
  if (!fresh)
    if (const auto known = archive.find_fact(environment, name)) {
      Json json = Json::parse(*known, nullptr, false);
      if (json.is_object()) {
        json["from_archive"] = true;
        return json;
      }
    }
  Json ceilings = session.ceilings(device, lock);
  archive.add_fact(environment, name, ceilings.dump());
  ceilings["from_archive"] = false;
  return ceilings;
}

double cache_bytes(Session& session, const std::string& device) {
  if (device != "cuda") return cpu_cache_bytes();
  const Json hello = session.hello();
  return hello["cuda"].is_array() && !hello["cuda"].empty() ? hello["cuda"][0].value("l2_bytes", 0.0) : 0.0;
}

}  // namespace kw
