// What is known of the device that a worker runs on; measured once, then kept in the archive.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "archive/archive.hpp"
#include "judge/environment.hpp"
#include "judge/session.hpp"
#include "target/device.hpp"

namespace kw {

// docs/worker-protocol.md, "ceilings"; from the archive unless `fresh`, then with "from_archive".
nlohmann::ordered_json device_ceilings(Session& session, Archive& archive, const std::string& environment,
                                       const std::string& device, bool fresh = false);

// docs/worker-protocol.md, "calibrate"; kept like the ceilings.
nlohmann::ordered_json device_calibration(Session& session, Archive& archive, const std::string& environment,
                                          const std::string& device, bool fresh = false);

// What the cost model goes by: the target's defaults with whatever the archive knows of this device. Measures nothing.
DeviceDescription known_device(Archive& archive, const Environment& environment, const std::string& environment_hash,
                               const std::string& target);

double cpu_cache_bytes();                                         // of the last level; 0 where the system does not say
double cache_bytes(Session& session, const std::string& device);  // of the last level

}  // namespace kw
