// What is known of the device that a worker runs on; measured once, then kept in the archive.
#pragma once

#include <optional>
#include <string>

#include "archive/archive.hpp"
#include "judge/environment.hpp"
#include "judge/session.hpp"
#include "measure/ceilings.hpp"
#include "target/target.hpp"

namespace kw {

// Of the archive; none where it knows none.
std::optional<Ceilings> known_ceilings(Archive& archive, const std::string& environment, const std::string& device);
std::optional<Calibration> known_calibration(Archive& archive, const std::string& environment,
                                             const std::string& device);

// Measured now, and kept in the archive.
Ceilings measure_ceilings(Session& session, Archive& archive, const std::string& environment,
                          const std::string& device);
Calibration measure_calibration(Session& session, Archive& archive, const std::string& environment,
                                const std::string& device);

// Known, or else measured.
Ceilings device_ceilings(Session& session, Archive& archive, const std::string& environment, const std::string& device);

// What lowering and the cost model go by: the target's defaults with what is seen of this device (`card`: Session's)
// and what the archive knows of it. Measures nothing.
DeviceDescription known_device(Archive& archive, const Environment& environment, const std::string& environment_hash,
                               const Target& target, const nlohmann::ordered_json& card);

double cache_bytes(Session& session, const Target& target);  // of the last level

}  // namespace kw
